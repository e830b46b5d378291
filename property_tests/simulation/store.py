"""The store as seen by one simulated process: shared records, faults of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from property_tests.simulation.world import Process, World
from sinksdk.store import Conflict, Store, StoreUnavailable
from sinksdk.store.base import FORMAT, Lost, Stored
from tests.helpers.memory_store import MemoryStore

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.05  # seconds


class Records:
    def __init__(self) -> None:
        self.stored: dict[str, Stored] = {}
        self.on_change: Callable[[str, Stored | None, Stored | None], None] | None = None

    def change(self, key: str, after: Stored | None) -> None:
        before = self.stored.get(key)
        if after is None:
            del self.stored[key]
        else:
            self.stored[key] = after
        if self.on_change is not None:
            self.on_change(key, before, after)


class SimulatedStore(Store):
    # A low limit, so that commits of few partitions are already stored in segments.
    most_entries = 1

    def __init__(self, world: World, records: Records, *, patience: float = 30.0) -> None:
        super().__init__(patience=patience, pause=0.0)
        self._world = world
        self._records = records

    @property
    def url(self) -> str:
        return "simulated:"

    @property
    def process(self) -> Process:
        return self._world.current.threads[0]

    def put(
        self, key: str, value: Mapping[str, Any], if_version: str | None, *, version: int = FORMAT
    ) -> str:
        is_task = "/tasks/" in key
        try:
            written = super().put(key, value, if_version, version=version)
        except Conflict:
            if is_task:
                self._world.current.is_fenced = True
            raise
        if is_task:
            self._world.current.is_fenced = False
        return written

    def _request(self, request: Callable[[], T], what: str) -> T:
        # The wait of the base class would be in real time.
        give_up = self._world.now() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return request()
            except Lost as error:
                if self._world.now() + pause > give_up:
                    message = f"{what} got no answer"
                    raise StoreUnavailable(message) from error
                self._world.sleep(pause)
                pause *= 2

    def _operate(self, what: str, effect: Callable[[], T], *, tell: bool = False) -> T:
        return self._world.operate(what, effect, lost=Lost, refused=Lost, tell=tell)

    def _read(self, key: str) -> Stored | None:
        return self._operate(f"reads {key}", lambda: self._records.stored.get(key))

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        def effect() -> bool:
            current = self._records.stored.get(key)
            if (current.version if current else None) != if_version:
                self._world.tell(f"writes {key}: conflict")
                return False
            self._world.tell(lambda: f"writes {key}: {_brief(key, stored)}")
            self._records.change(key, stored)
            return True

        return self._operate(f"writes {key}", effect)

    def _remove(self, key: str, if_version: str) -> bool:
        def effect() -> bool:
            current = self._records.stored.get(key)
            if current is None or current.version != if_version:
                return False
            self._records.change(key, None)
            return True

        return self._operate(f"removes {key}", effect)

    def _keys(self, prefix: str) -> Sequence[str]:
        return self._operate(
            f"lists {prefix}", lambda: [key for key in self._records.stored if key.startswith(prefix)]
        )


class Bystander(MemoryStore):
    def __init__(self, stored: dict[str, Stored]) -> None:
        super().__init__()
        self._records = stored

    def _request(self, request: Callable[[], T], what: str) -> T:
        return request()


def _brief(key: str, stored: Stored) -> str:
    value = json.loads(stored.body)
    if "/tasks/" in key:
        entries = ", ".join(
            f"{e['partition']}@{e['offset']}{''.join(' +' + t['id'] for t in e['publish'])}"
            for e in value["entries"]
        )
        prepared = [token["id"] for row in value["prepared"] for token in row["tokens"]]
        return (
            f"generation {value['generation']}, attempt {value['attempt']}, committed [{entries}], "
            f"prepared {prepared}, discarded {value['discarded']}, segments {value['segments']}"
        )
    if key.endswith("tasks-count"):
        return f"claimed {value['claimed']}, planned {value['planned']}, tasks {value['tasks']}"
    # Of the records of a generation, only the plan has ``tasks``.
    if "/generations/" in key and "tasks" in value:
        ranges = [
            [f"{r['partition']}:{r['start']}-{r['end']}" for r in task["ranges"]] for task in value["tasks"]
        ]
        return f"ranges {ranges}"
    if key.endswith("-closing"):
        return f"reason {value['reason']}, successor {value['successor']}, answered {value['answered']}"
    return "…"
