"""A store that lives as long as its process."""

from __future__ import annotations

import threading

from sinksdk.store.base import Store, Stored
from sinksdk.store.sql import Snapshot


class MemoryStore(Store):
    def __init__(self, *, patience: float = 30.0, pause: float = 0.0) -> None:
        super().__init__(patience=patience, pause=pause)
        self._lock = threading.Lock()
        self._records: dict[str, Stored] = {}

    @property
    def url(self) -> str:
        # Other processes cannot open a store in memory.
        return "memory:"

    def snapshot(self, prefix: str) -> Store:
        with self._lock:
            found = {key: stored for key, stored in self._records.items() if key.startswith(prefix)}
        return Snapshot(self.url, found)

    def _read(self, key: str) -> Stored | None:
        with self._lock:
            return self._records.get(key)

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        with self._lock:
            current = self._records.get(key)
            if (current.version if current else None) != if_version:
                return False
            self._records[key] = stored
            return True

    def _remove(self, key: str, if_version: str) -> bool:
        with self._lock:
            current = self._records.get(key)
            if current is None or current.version != if_version:
                return False
            del self._records[key]
            return True

    def _keys(self, prefix: str) -> list[str]:
        with self._lock:
            return [key for key in self._records if key.startswith(prefix)]
