"""Correct sources, and sources derived from them that each break one rule.

Real sources have broken each of these rules. :func:`~sinksdk.testing.check_source` must catch all of them with default
settings. Each source reads from a :class:`~sinksdk.testing.MemoryOrigin`.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sinksdk.errors import ConnectException, RetriableException
from sinksdk.source.records import RecordMetadata, SourceRecord
from sinksdk.source.task import SourceTask
from sinksdk.testing.doubles import MemoryOrigin
from sinksdk.testing.faults import FaultPlan
from sinksdk.testing.source_kit.subject import SourceCapabilities

TOPIC: Final = "lines"
_A_WHILE: Final = 0.01  # seconds
_FOR_EVER: Final = 5.0  # seconds: longer than the kit waits, but short enough not to delay a test run


def share(origin: MemoryOrigin, tasks: int) -> list[list[str]]:
    parts = sorted(origin.parts)
    return [parts[number::tasks] for number in range(min(tasks, len(parts)))]


# -- honest ones ---------------------------------------------------------------------------------------


class PartSource(SourceTask):
    """Reads parts line by line; an idle poll waits until stop."""

    def __init__(self, origin: MemoryOrigin) -> None:
        self.origin = origin
        self.stopping = threading.Event()

    def start(self, config: Sequence[str]) -> None:
        told = self.context.offset_storage_reader().offsets([{"part": part} for part in config])
        self.next = {
            part: int(str(offset["next"])) if offset else 0 for part, offset in zip(config, told, strict=True)
        }

    def poll(self) -> Sequence[SourceRecord] | None:
        for part in self.next:
            if records := self.read(part):
                return records
        self.wait()
        return None

    def read(self, part: str) -> list[SourceRecord]:
        start = self.next[part]
        lines = self.origin.read(part, start)
        self.next[part] = start + len(lines)
        return [self.record(part, number, line) for number, line in enumerate(lines, start)]

    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        return SourceRecord({"part": part}, {"next": number + 1}, TOPIC, line)

    def wait(self) -> None:
        self.stopping.wait()

    def stop(self) -> None:
        self.stopping.set()


class RepollingSource(PartSource):
    """Polls again after a while instead of waiting for ever."""

    def wait(self) -> None:
        self.stopping.wait(_A_WHILE)


class ThreadedSource(PartSource):
    """Reads ahead on a thread of its own and holds a file; ``stopped`` releases both."""

    thread: threading.Thread | None = None
    file: int | None = None

    def start(self, config: Sequence[str]) -> None:
        super().start(config)
        self.ready: queue.Queue[list[SourceRecord] | Exception] = queue.Queue(maxsize=1)
        self.file = os.open(os.devnull, os.O_RDONLY)
        self.thread = threading.Thread(target=self.read_ahead)
        self.thread.start()

    def read_ahead(self) -> None:
        while not self.stopping.is_set():
            found: list[SourceRecord] | Exception = []
            try:
                found = next((records for part in self.next if (records := self.read(part))), [])
            except ConnectException as error:
                found = error
            while found and not self.stopping.is_set():
                try:
                    self.ready.put(found, timeout=_A_WHILE)
                    break
                except queue.Full:
                    pass
            if not found:
                self.stopping.wait(_A_WHILE)

    def poll(self) -> Sequence[SourceRecord] | None:
        try:
            found = self.ready.get(timeout=_A_WHILE)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def stopped(self) -> None:
        self.stopping.set()
        if self.thread is not None:
            self.thread.join()
        if self.file is not None:
            os.close(self.file)


class QueueSource(PartSource):
    """Acknowledges committed lines; after a crash before that they are delivered again: at least once."""

    def start(self, config: Sequence[str]) -> None:
        self.next = {part: self.origin.forgotten[part] for part in config}
        self.done = dict(self.next)

    def commit_record(self, record: SourceRecord, _: RecordMetadata | None) -> None:
        self.done[str(record.source_partition["part"])] = int(str(record.source_offset["next"]))

    def commit(self) -> None:
        for part, end in self.done.items():
            self.origin.forget(part, end)


class PairingSource(PartSource):
    """Ends a transaction after each second record."""

    def read(self, part: str) -> list[SourceRecord]:
        records = super().read(part)[:2]
        if records:
            self.next[part] = int(str(records[-1].source_offset["next"]))
            transactions = self.context.transaction_context()
            if transactions is not None:
                transactions.commit_transaction(records[-1])
        return records


# -- broken ones ---------------------------------------------------------------------------------------


class SkipsAhead(PartSource):
    """Returns offsets that are one too high."""

    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        return SourceRecord({"part": part}, {"next": number + 2}, TOPIC, line)


class LagsBehind(PartSource):
    """Returns the offset of the record itself instead of the next one, and resumes from it."""

    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        return SourceRecord({"part": part}, {"next": number}, TOPIC, line)


class IgnoresCommittedOffsets(PartSource):
    def start(self, config: Sequence[str]) -> None:
        self.next = dict.fromkeys(config, 0)


class GoesBack(PartSource):
    """Returns offsets that count down."""

    def start(self, config: Sequence[str]) -> None:
        told = self.context.offset_storage_reader().offsets([{"part": part} for part in config])
        self.next = {
            part: len(self.origin.parts[part]) - int(str(offset["left"])) if offset else 0
            for part, offset in zip(config, told, strict=True)
        }

    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        left = len(self.origin.parts[part]) - number - 1
        return SourceRecord({"part": part}, {"left": left}, TOPIC, line)


class AdvancesBeforeTheRead(PartSource):
    """Moves its position before the read, so that a failed read loses lines."""

    def read(self, part: str) -> list[SourceRecord]:
        start = self.next[part]
        self.next[part] = min(start + 3, len(self.origin.parts[part]))
        lines = self.origin.read(part, start)
        return [self.record(part, number, line) for number, line in enumerate(lines, start)]


class AcknowledgesBeforeCommit(QueueSource):
    """Acknowledges polled lines before they are committed."""

    def read(self, part: str) -> list[SourceRecord]:
        records = super().read(part)
        self.origin.forget(part, self.next[part])
        return records


class SwallowsErrors(PartSource):
    """Skips a line when a read fails."""

    def read(self, part: str) -> list[SourceRecord]:
        try:
            return super().read(part)
        except RetriableException:
            raise
        except ConnectException:
            self.next[part] += 1
            return []


class Shuffles(PartSource):
    """Reorders the lines of a batch."""

    def read(self, part: str) -> list[SourceRecord]:
        records = super().read(part)
        values = [record.value for record in reversed(records)]
        return [
            SourceRecord(record.source_partition, record.source_offset, TOPIC, value)
            for record, value in zip(records, values, strict=True)
        ]


class NamesPartitionsByTask(PartSource):
    """Names source partitions by the parts of its task, which depend on the number of tasks."""

    def start(self, config: Sequence[str]) -> None:
        self.share = ",".join(config)
        told = self.context.offset_storage_reader().offsets([self.place(part) for part in config])
        self.next = {
            part: int(str(offset["next"])) if offset else 0 for part, offset in zip(config, told, strict=True)
        }

    def place(self, part: str) -> dict[str, str]:
        return {"share": self.share, "part": part}

    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        return SourceRecord(self.place(part), {"next": number + 1}, TOPIC, line)


class SharesItsPosition(PartSource):
    """Keeps its position in its class: a new task continues from an uncommitted position."""

    next: dict[str, int] = {}  # noqa: RUF012 - the mistake

    def start(self, config: Sequence[str]) -> None:
        for part in config:
            offset = self.context.offset_storage_reader().offset({"part": part})
            self.next.setdefault(part, int(str(offset["next"])) if offset else 0)


class NeverWaits(PartSource):
    """Returns at once when there is nothing to read."""

    def wait(self) -> None:
        """Return at once."""


class CannotBeStopped(PartSource):
    """Waits for an event that stop does not set."""

    def wait(self) -> None:
        threading.Event().wait(_FOR_EVER)


class HangsInStop(PartSource):
    """Waits in ``stop`` for the end of poll, which waits for ``stop``."""

    def __init__(self, origin: MemoryOrigin) -> None:
        super().__init__(origin)
        self.idle = threading.Event()

    def stop(self) -> None:
        self.idle.wait(_FOR_EVER)
        super().stop()


class LeavesAThread(ThreadedSource):
    """Does not join its thread, which keeps running for a while."""

    def start(self, config: Sequence[str]) -> None:
        super().start(config)
        threading.Thread(
            target=threading.Event().wait, args=[_FOR_EVER], name="forgotten", daemon=True
        ).start()


class LeavesAFile(PartSource):
    """Closes no file."""

    def start(self, config: Sequence[str]) -> None:
        super().start(config)
        self.file = Path(os.devnull).open("rb")  # noqa: SIM115 - the mistake


class LeavesAFileAfterAFailedStart(PartSource):
    """Leaves a file open if its start fails halfway."""

    opened: int | None = None

    def start(self, config: Sequence[str]) -> None:
        opened = os.open(os.devnull, os.O_RDONLY)
        super().start(config)
        self.opened = opened

    def stopped(self) -> None:
        if self.opened is not None:
            os.close(self.opened)


class ReleasesInStop(PartSource):
    """Calls ``stopped`` itself."""

    def stop(self) -> None:
        super().stop()
        self.stopped()


class ReleasesUnstartedResources(PartSource):
    """Raises in ``stopped`` after ``start`` failed halfway."""

    def stopped(self) -> None:
        self.next.clear()


class DropsTheLastLine(PartSource):
    """Treats the last line as incomplete."""

    def read(self, part: str) -> list[SourceRecord]:
        return [record for record in super().read(part) if record.value != b"c-2"]


class EndsTransactionsWithinAnOffset(PairingSource):
    """Gives all lines of a batch one offset, and ends a transaction among them."""

    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        return SourceRecord({"part": part}, {"next": number // 3 * 3 + 3}, TOPIC, line)

    def read(self, part: str) -> list[SourceRecord]:
        records = PartSource.read(self, part)
        transactions = self.context.transaction_context()
        if records and transactions is not None:
            transactions.commit_transaction(records[0])
            transactions.commit_transaction()
        return records


# -- sources of rows that change -------------------------------------------------------------------------


class Table:
    """Rows that change in place; a reader may miss earlier states. Each change has a number."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.rows: dict[bytes, tuple[int, bytes]] = {}
        self.changed = 0
        for key in (b"1", b"2", b"3", b"4"):
            self.put(key, b"first of " + key)

    def put(self, key: bytes, value: bytes) -> None:
        self.changed += 1
        self.rows[key] = (self.changed, value)

    def since(self, changed: int) -> list[tuple[int, bytes, bytes]]:
        def read_rows() -> list[tuple[int, bytes, bytes]]:
            rows = ((at, key, value) for key, (at, value) in self.rows.items() if at > changed)
            return sorted(rows)[:2]

        return self.faults.run("origin", read_rows)

    def truth(self) -> dict[bytes, bytes | None]:
        return {key: value for key, (_, value) in self.rows.items()}


class RowSource(SourceTask):
    """Reads the current rows in the order of their changes."""

    partition: Final = {"table": "rows"}

    def __init__(self, table: Table) -> None:
        self.table = table
        self.stopping = threading.Event()

    def start(self, config: object) -> None:
        offset = self.context.offset_storage_reader().offset(self.partition)
        self.changed = int(str(offset["changed"])) if offset else 0

    def poll(self) -> Sequence[SourceRecord]:
        records = [self.record(*row) for row in self.read_rows()]
        if not records:
            self.stopping.wait(_A_WHILE)
        return records

    def read_rows(self) -> list[tuple[int, bytes, bytes]]:
        rows = self.table.since(self.changed)
        if rows:
            self.changed = rows[-1][0]
        return rows

    def record(self, changed: int, key: bytes, value: bytes) -> SourceRecord:
        return SourceRecord(self.partition, {"changed": changed}, TOPIC, value, key)

    def stop(self) -> None:
        self.stopping.set()


class MissesChanges(RowSource):
    """Wrong: delivers each row once, in the state that it first saw."""

    def read_rows(self) -> list[tuple[int, bytes, bytes]]:
        return [row for row in super().read_rows() if row[2].startswith(b"first")]


class InventsRows(RowSource):
    """Wrong: delivers two rows for one."""

    def read_rows(self) -> list[tuple[int, bytes, bytes]]:
        return [
            made for at, k, value in super().read_rows() for made in ((at, k, value), (at, k + b"'", value))
        ]


class RepeatsRows(RowSource):
    """Wrong: starts one change before its committed one."""

    def start(self, config: object) -> None:
        super().start(config)
        self.changed -= 1


class ReturnsOlderStates(RowSource):
    """Wrong: delivers an older state of a row after a newer one."""

    def read_rows(self) -> list[tuple[int, bytes, bytes]]:
        return [
            made
            for at, k, value in super().read_rows()
            for made in ((at, k, value), (at, k, b"first of " + k))
        ]


@dataclass(frozen=True)
class SourceSpecimen:
    """A source, and its declared capabilities."""

    make_task: type[PartSource]
    capabilities: SourceCapabilities = field(default_factory=SourceCapabilities)

    @property
    def name(self) -> str:
        return self.make_task.__name__


_AT_LEAST_ONCE: Final = SourceCapabilities(exactly_once=False, ordered=False, grows=False)
_PAIRING: Final = SourceCapabilities(boundaries=("connector",))

HONEST: Final = (
    SourceSpecimen(PartSource),
    SourceSpecimen(RepollingSource),
    SourceSpecimen(ThreadedSource),
    SourceSpecimen(QueueSource, _AT_LEAST_ONCE),
    SourceSpecimen(PairingSource, _PAIRING),
)
"""Sources that keep their promise."""

BROKEN: Final = (
    *(
        SourceSpecimen(make_task)
        for make_task in (
            *(
                SkipsAhead,
                LagsBehind,
                IgnoresCommittedOffsets,
                GoesBack,
                AdvancesBeforeTheRead,
                SwallowsErrors,
                Shuffles,
            ),
            *(NamesPartitionsByTask, SharesItsPosition, NeverWaits, CannotBeStopped, HangsInStop),
            *(
                LeavesAThread,
                LeavesAFile,
                LeavesAFileAfterAFailedStart,
                ReleasesInStop,
                ReleasesUnstartedResources,
            ),
            DropsTheLastLine,
        )
    ),
    SourceSpecimen(AcknowledgesBeforeCommit, _AT_LEAST_ONCE),
    SourceSpecimen(EndsTransactionsWithinAnOffset, _PAIRING),
)
"""Sources that break their promise."""
