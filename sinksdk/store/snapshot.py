"""Part of a store as it was at one moment."""

from __future__ import annotations

from collections.abc import Mapping

from sinksdk.store.base import Store, Stored, StoreRefused


class Snapshot(Store):
    """A store that only answers, from what was read of another one in a single request.

    Args:
        url: of that other one, for messages.
        records: everything below the prefix that was read.
    """

    def __init__(self, url: str, records: Mapping[str, Stored]) -> None:
        super().__init__()
        self._of = url
        self._records = records

    @property
    def url(self) -> str:
        """Of the store it was taken of."""
        return self._of

    def _read(self, key: str) -> Stored | None:
        return self._records.get(key)

    def _keys(self, prefix: str) -> list[str]:
        return [key for key in self._records if key.startswith(prefix)]

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:  # noqa: ARG002 - nothing is written
        raise self._refusal(key)

    def _remove(self, key: str, if_version: str) -> bool:  # noqa: ARG002 - nothing is removed
        raise self._refusal(key)

    def _refusal(self, key: str) -> StoreRefused:
        return StoreRefused(f"{key} is not written: this is a snapshot of store {self._of}")
