"""Sinks for tables with one row per key: correct ones, and ones that each break one rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.task import SinkTask
from sinksdk.testing import Capabilities, FaultPlan, Guarantee
from sinksdk.testing.contract import POISON

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Table:
    """Rows by key and a watermark per partition, changed atomically."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.rows: dict[Any, Any] = {}
        self.newest: dict[tuple[Any, TopicPartition], int] = {}
        self.marks: dict[TopicPartition, int] = {}
        self.staged: dict[str, list[SinkRecord]] = {}
        self.begun = 0

    def move(self, partition: TopicPartition, offset: int | None) -> None:
        self.marks.pop(partition, None)
        if offset is not None:
            self.marks[partition] = offset

    def read_back(self) -> dict[Any, Any]:
        return dict(self.rows)

    def apply(self, record: SinkRecord) -> None:
        if record.value is None:
            self.rows.pop(record.key, None)
        else:
            self.rows[record.key] = record.value

    def begin(self) -> str:
        self.begun += 1
        name = f"staged-{self.begun}"
        self.staged[name] = []
        return name

    def fill(self, name: str, rows: list[SinkRecord]) -> None:
        if name not in self.staged:
            raise ConnectException(f"{name} does not exist")
        self.staged[name] = rows

    def leftovers(self) -> list[str]:
        return [name for name, rows in self.staged.items() if rows]


class GuardedSink(SinkTask):
    """Applies only newer changes of a partition to a row, and remembers deleted rows: effectively once.

    One offset per row would not do: a key may be in several partitions.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def put(self, records: SinkRecords) -> None:
        self.table.faults.run("destination", lambda: self.write(list(records)))

    def write(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            if self.is_fresh(record):
                self.table.apply(record)
                self.table.newest[record.key, record.topic_partition] = record.offset

    def is_fresh(self, record: SinkRecord) -> bool:
        return record.offset > self.table.newest.get((record.key, record.topic_partition), -1)


class MarkingSink(GuardedSink):
    """Moves a watermark per partition in the transaction that writes its rows: effectively once."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write(records)
        for record in records:
            mark = self.table.marks.get(record.topic_partition, 0)
            self.table.marks[record.topic_partition] = max(mark, record.offset + 1)

    def is_fresh(self, record: SinkRecord) -> bool:
        return record.offset >= self.table.marks.get(record.topic_partition, 0)


class StagingSink(GuardedSink):
    """Stages rows, and moves them into the table after their commit: exactly once."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.stages: dict[TopicPartition, Token] = {}
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        if records.partition not in self.stages:
            self.stages[records.partition] = Token(self.table.begin())
            self.context.prepared({records.partition: [self.stages[records.partition]]})
        self.waiting[records.partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        ready = {}
        for partition, offset in offsets.items():
            if partition in self.stages:
                token = self.stages[partition]
                rows = self.waiting[partition]
                self.stage(token.id, rows)
                del self.stages[partition], self.waiting[partition]
                ready[partition] = OffsetAndMetadata(offset.offset, publish=[token])
        return ready

    def stage(self, name: str, rows: list[SinkRecord]) -> None:
        self.table.faults.run("destination", lambda: self.table.fill(name, rows))

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.table.faults.run("destination", lambda: self.write(self.table.staged.pop(token.id, [])))  # noqa: B023 - run at once

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.table.faults.run("destination", lambda: self.table.staged.pop(token.id, None))  # noqa: B023 - as above

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.stages.pop(partition, None)
            self.waiting.pop(partition, None)


# -- broken ones ---------------------------------------------------------------------------------------


class OverwritesNewer(GuardedSink):
    """Applies every record, as a table without offsets does: repeated writes of a zombie stay."""

    def is_fresh(self, record: SinkRecord) -> bool:
        return True


class AppliesAgain(OverwritesNewer):
    """Overwrites newer rows too, although it is declared effectively once."""


class IgnoresTheMark(MarkingSink):
    """Moves the watermark, but does not read it."""

    def is_fresh(self, record: SinkRecord) -> bool:
        return True


class LosesKeys(GuardedSink):
    """Writes only the last record of each batch, whatever its key."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write(records[-1:])


class KeepsTheFirst(GuardedSink):
    """Writes the first record of each key in a batch."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write(list({record.key: record for record in reversed(records)}.values()))


class ForgetsDeletions(GuardedSink):
    """Keeps offsets in the rows: a deleted row has none, so an older value comes back."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write(records)
        there = self.table.newest.items()
        self.table.newest = {at: offset for at, offset in there if at[0] in self.table.rows}


class IgnoresTombstones(GuardedSink):
    """Skips records without a value, so that the row stays."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write([record for record in records if record.value is not None])


class MixesValues(GuardedSink):
    """Writes values to the keys of their neighbours."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        values = [records[-1].value, *(record.value for record in records[:-1])]
        super().write([replace(row, value=value) for row, value in zip(records, values, strict=True)])


class InventsKeys(GuardedSink):
    """Changes keys."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write([replace(record, key=f"{record.key!r}".encode()) for record in records])


class HidesPoison(GuardedSink):
    """Skips bad records silently."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write([record for record in records if record.value != POISON])


class ShowsStages(StagingSink):
    """Writes rows into the table when it stages them."""

    def stage(self, name: str, rows: list[SinkRecord]) -> None:
        super().stage(name, rows)
        self.write(rows)


class WritesOnClose(GuardedSink):
    """Writes its buffer on close, as well as on commit."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        self.waiting[records.partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        for partition in offsets:
            self.write(self.waiting.pop(partition, []))
        return offsets

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.write(self.waiting.pop(partition, []))


_AT_LEAST = Capabilities(Guarantee.AT_LEAST_ONCE)
_EFFECTIVELY = Capabilities(Guarantee.EFFECTIVELY_ONCE)
_REPORTING = Capabilities(dead_letters=True)
_EXACTLY = Capabilities(Guarantee.EXACTLY_ONCE)

HONEST: Final[Mapping[type[SinkTask], Capabilities]] = {
    GuardedSink: _EFFECTIVELY,
    MarkingSink: _EFFECTIVELY,
    StagingSink: _EXACTLY,
}
"""Sinks that keep their promise."""

BROKEN: Final[Mapping[type[SinkTask], tuple[Capabilities, str]]] = {
    OverwritesNewer: (
        _AT_LEAST,
        r"key .* has the value of offset \d+ of .*, but offset \d+, which is committed,",
    ),
    AppliesAgain: (
        _EFFECTIVELY,
        r"had the value of offset|has the value of offset \d+ of .*(is newer|but the committed offset is)",
    ),
    LosesKeys: (_AT_LEAST, r"lost: key .*, which offset .* wrote, is not at the destination"),
    KeepsTheFirst: (_AT_LEAST, r"which is committed, (deletes it|is newer)"),
    ForgetsDeletions: (_AT_LEAST, r"which is committed, deletes it"),
    IgnoresTombstones: (_AT_LEAST, r"which is committed, deletes it"),
    MixesValues: (_AT_LEAST, r"which no record with it has"),
    HidesPoison: (_REPORTING, "which cannot be delivered, is not in the dead letters"),
    InventsKeys: (_AT_LEAST, r"no record with this key was ever put"),
    ShowsStages: (_EXACTLY, r"but the committed offset is \d+"),
    WritesOnClose: (_AT_LEAST, r"close changed key"),
    IgnoresTheMark: (_EFFECTIVELY, r"had the value of offset|which is committed,"),
}
"""Sinks that break their promise, and the expected problem."""
