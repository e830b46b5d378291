"""Check the records that a source delivered, their offsets, and what it left open."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from sinksdk.source.positions import SourcePosition, as_json, partition_key
from sinksdk.source.records import SourceOffset, SourceRecord
from sinksdk.testing.source_kit.subject import Expected, Rows, SourceCapabilities, key_of, shape_of

KIT_THREAD: Final = "sinksdk kit"

_FILES: Final = next((path for path in map(Path, ("/proc/self/fd", "/dev/fd")) if path.is_dir()), None)
_ENDING: Final = 1.0  # seconds that a finished thread may need to exit
_PAUSE: Final = 0.002
_SHOWN: Final = 5


class OpenFile(NamedTuple):
    # The name of an open file may change, so it is not compared.
    number: int
    device: int
    inode: int

    @property
    def name(self) -> str:
        try:
            return str(Path(f"{_FILES}/{self.number}").readlink())
        except OSError:
            return f"number {self.number}"


@dataclass(frozen=True, slots=True)
class OpenResources:
    files: frozenset[OpenFile]
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> OpenResources:
        threads = (thread for thread in threading.enumerate() if not thread.name.startswith(KIT_THREAD))
        return cls(frozenset(_open_files()), frozenset(threads))

    def left_since(self) -> list[str]:
        deadline = time.monotonic() + _ENDING
        while (now := OpenResources.now()).threads - self.threads and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        files = sorted(f"the open file {file.name}" for file in now.files - self.files)
        threads = sorted(f"the thread {thread.name!r}" for thread in now.threads - self.threads)
        return files + threads


def can_see_files() -> bool:
    return _FILES is not None


def _open_files() -> list[OpenFile]:
    found = []
    for number in [int(entry.name) for entry in (_FILES.iterdir() if _FILES else ())]:
        with suppress(OSError):  # the descriptor of the listing itself, which is closed by now
            status = os.fstat(number)
            found.append(OpenFile(number, status.st_dev, status.st_ino))
    return found


class SourceJudge:
    def __init__(self, promise: SourceCapabilities) -> None:
        self._promise = promise
        self._last: dict[str, SourcePosition] = {}
        self._passed: dict[str, set[str]] = defaultdict(set)
        self._following: dict[tuple[str, str], list[SourceRecord]] = defaultdict(list)
        self.problem: str | None = None
        self.duplicates = 0

    def blame(self, problem: str) -> None:
        self.problem = self.problem or problem

    # -- while it runs -------------------------------------------------------------------------------

    def moved(self, position: SourcePosition) -> None:
        key, offset = as_json(position.partition), as_json(position.offset)
        before = self._last.get(key)
        if before is not None and as_json(before.offset) != offset:
            if self._promise.grows and (
                offset in self._passed[key] or self._went_back(position.offset, before.offset)
            ):
                self.blame(
                    f"the offset of {dict(position.partition)} went back from {dict(before.offset)} to "
                    f"{dict(position.offset)}: records between them are read again after a crash"
                )
            self._passed[key].add(as_json(before.offset))
        self._last[key] = position

    def _went_back(self, offset: SourceOffset, before: SourceOffset) -> bool:
        names = self._promise.grows
        if isinstance(names, bool):
            return _is_less(offset, before)
        if missing := [name for name in names if name not in offset or name not in before]:
            shown = dict(offset if missing[0] not in offset else before)
            self.blame(f"`grows` names {missing[0]!r}, which the offset {shown} does not have")
            return False
        try:
            return [offset[name] for name in names] < [before[name] for name in names]
        except TypeError as error:
            self.blame(
                f"`grows` cannot compare the offset {dict(offset)} with {dict(before)} ({error}): name "
                f"fields that are always numbers or always texts"
            )
            return False

    def follows(self, before: dict[str, str], record: SourceRecord) -> None:
        # ``before`` holds the last offset of each source partition.
        try:
            key, offset = partition_key(record.source_partition), partition_key(record.source_offset)
        except Exception:  # noqa: BLE001 - the engine reports invalid positions
            return
        reached = before.get(key)
        if reached is not None and reached != offset:
            followers = self._following[key, reached]
            if record not in followers:
                followers.append(record)
        before[key] = offset

    # -- at the end ----------------------------------------------------------------------------------

    def check(self, truth: Sequence[Expected] | Rows, logs: Iterable[Sequence[SourceRecord]]) -> None:
        logs = list(logs)
        if isinstance(truth, Mapping):
            self._check_rows(truth, logs)
            return
        shape = shape_of(truth)
        seen = Counter(shape(record) for log in logs for record in log)
        wanted = Counter(truth)
        self.duplicates = sum((seen - wanted).values())
        unexpected = [row for row in seen if row not in wanted]
        if unexpected:
            self.blame(f"{_listed(unexpected)} in the topics, but not in `expected`")
        missing = list((wanted - seen).elements())
        if missing:
            self.blame(f"lost: {_listed(missing)} in `expected`, but not in the topics{self._why()}")
        again = list((seen - wanted).elements())
        if again and self._promise.exactly_once:
            self.blame(f"twice: {_listed(again)} in the topics more often than expected{self._why()}")
        if self._promise.ordered and not again:
            self._check_order(truth, logs)

    def _check_rows(self, truth: Rows, logs: Sequence[Sequence[SourceRecord]]) -> None:
        # An earlier record of a key counts only if it comes twice.
        rows = rows_of(truth, logs)
        unexpected = [key for key, value in rows.items() if value is not None and key not in truth]
        if unexpected:
            noun = "key" if len(unexpected) == 1 else "keys"
            self.blame(f"the {noun} {_listed(unexpected)} in the topics, but not in `expected`")
        for key, value in truth.items():
            if (found := rows.get(key)) != value:
                last = f"has the value {found!r}" if found is not None else "deletes the key"
                self.blame(
                    f"lost: the key {key!r} has the value {value!r} in `expected`, but "
                    f"{f'its last record in the topics {last}' if key in rows else 'is not in the topics'}"
                    f"{self._why()}"
                )
        seen = Counter(_identity(record) for log in logs for record in log)
        again = [identity for identity, count in seen.items() if count > 1]
        self.duplicates = sum(seen[identity] - 1 for identity in again)
        if again and self._promise.exactly_once:
            _, key, value, partition, offset = again[0]
            self.blame(
                f"twice: {value!r} with the key {key!r} from {partition} at {offset} is in the topics "
                f"{seen[again[0]]} times{self._why()}"
            )

    def _why(self) -> str:
        # The records after an offset must be the same at each read.
        for (partition, offset), followers in self._following.items():
            if len(followers) > 1:
                given = " and ".join(repr(record.value) for record in followers[:2])
                start = f"offset {offset}" if offset else "the beginning"
                return (
                    f"; the source partition {partition} continued from {start} with {given} in different "
                    f"tasks: after an offset, a source must always return the same records"
                )
        return ""

    def _check_order(self, truth: Sequence[Expected], logs: Iterable[Sequence[SourceRecord]]) -> None:
        shape = shape_of(truth)
        for log in logs:
            parts: dict[str, list[SourceRecord]] = defaultdict(list)
            for record in log:
                parts[partition_key(record.source_partition)].append(record)
            for key, records in parts.items():
                rest = iter(truth)
                for record in records:
                    if not any(row == shape(record) for row in rest):
                        self.blame(
                            f"out of order: {record.value!r} of the source partition {key} is not at its "
                            f"place in `expected`; declare ordered=False if this is intended"
                        )
                        return


def rows_of(truth: Rows, logs: Iterable[Sequence[SourceRecord]]) -> dict[Any, bytes | None]:
    key_in = key_of(truth)
    return {key_in(record): record.value for log in logs for record in log}


def _identity(record: SourceRecord) -> tuple[str, bytes | None, bytes | None, str, str]:
    partition, offset = partition_key(record.source_partition), partition_key(record.source_offset)
    return record.topic, record.key, record.value, partition, offset


def _is_less(offset: SourceOffset, before: SourceOffset) -> bool:
    # The offset went back if a number is smaller, and all other fields are equal or smaller.
    if offset.keys() != before.keys():
        return False
    pairs = [(offset[name], before[name]) for name in offset if offset[name] != before[name]]
    return bool(pairs) and all(
        isinstance(a, int | float) and isinstance(b, int | float) and a < b for a, b in pairs
    )


def _listed(rows: Sequence[Expected]) -> str:
    shown = ", ".join(map(repr, rows[:_SHOWN]))
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"{shown}{more} {'is' if len(rows) == 1 else 'are'}"


def changed_classes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(name for name, value in after.items() if before.get(name) != value)


def class_state(task: object) -> dict[str, str]:
    own = [
        kind
        for kind in type(task).__mro__
        if not kind.__module__.startswith(("sinksdk.source.", "abc", "builtins"))
    ]
    return {
        f"{kind.__name__}.{name}": repr(value)
        for kind in own
        for name, value in vars(kind).items()
        if isinstance(value, dict | list | set | bytearray | int | str | bytes | None)
        and not name.startswith("__")
    }
