"""Sinks for tables of one row for each key: honest ones, and ones that are wrong on purpose."""

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
    """Rows by key, and how far each partition has written them: changed together, or not at all."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.rows: dict[Any, Any] = {}
        self.newest: dict[tuple[Any, TopicPartition], int] = {}
        self.marks: dict[TopicPartition, int] = {}
        self.staged: dict[str, list[SinkRecord]] = {}
        self.begun = 0

    def move(self, partition: TopicPartition, offset: int | None) -> None:
        """What ``alter_offsets`` of a connector does whose sink keeps its mark here."""
        self.marks.pop(partition, None)
        if offset is not None:
            self.marks[partition] = offset

    def read_back(self) -> dict[Any, Any]:
        """What readers see."""
        return dict(self.rows)

    def apply(self, record: SinkRecord) -> None:
        """Insert or replace the row of a key, or remove it."""
        if record.value is None:
            self.rows.pop(record.key, None)
        else:
            self.rows[record.key] = record.value

    def begin(self) -> str:
        """A new name for rows that nobody sees yet."""
        self.begun += 1
        name = f"staged-{self.begun}"
        self.staged[name] = []
        return name

    def fill(self, name: str, rows: list[SinkRecord]) -> None:
        """Stage rows. Raises ConnectException for a name that is gone."""
        if name not in self.staged:
            raise ConnectException(f"{name} is not there")
        self.staged[name] = rows

    def leftovers(self) -> list[str]:
        """Staged rows."""
        return [name for name, rows in self.staged.items() if rows]


class GuardedSink(SinkTask):
    """Applies to a row only what is newer in its partition, and remembers it of deleted ones: effectively once.

    One offset for each row would not do: a key may be in several partitions.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def put(self, records: SinkRecords) -> None:
        """All of them in one transaction."""
        self.table.faults.run("destination", lambda: self.write(list(records)))

    def write(self, records: Sequence[SinkRecord]) -> None:
        """In the order of offsets."""
        for record in records:
            if self.is_fresh(record):
                self.table.apply(record)
                self.table.newest[record.key, record.topic_partition] = record.offset

    def is_fresh(self, record: SinkRecord) -> bool:
        """Whether it is newer than what its partition has written of this key."""
        return record.offset > self.table.newest.get((record.key, record.topic_partition), -1)


class MarkingSink(GuardedSink):
    """Keeps a watermark of each partition in the transaction that writes its rows: effectively once."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """What is new, and the watermark."""
        super().write(records)
        for record in records:
            mark = self.table.marks.get(record.topic_partition, 0)
            self.table.marks[record.topic_partition] = max(mark, record.offset + 1)

    def is_fresh(self, record: SinkRecord) -> bool:
        """Whether the watermark is not beyond it."""
        return record.offset >= self.table.marks.get(record.topic_partition, 0)


class StagingSink(GuardedSink):
    """Stages rows, and writes them into the table once they are committed: exactly once."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.stages: dict[TopicPartition, Token] = {}
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        """Note a stage, collect."""
        if records.partition not in self.stages:
            self.stages[records.partition] = Token(self.table.begin())
            self.context.prepared({records.partition: [self.stages[records.partition]]})
        self.waiting[records.partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Stage everything."""
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
        """Nobody sees them yet."""
        self.table.faults.run("destination", lambda: self.table.fill(name, rows))

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Each at once; again is no harm."""
        for token in tokens:
            self.table.faults.run("destination", lambda: self.write(self.table.staged.pop(token.id, [])))  # noqa: B023 - run at once

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Remove what no commit covers."""
        for token in tokens:
            self.table.faults.run("destination", lambda: self.table.staged.pop(token.id, None))  # noqa: B023 - as above

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget."""
        for partition in partitions:
            self.stages.pop(partition, None)
            self.waiting.pop(partition, None)


# -- broken ones ---------------------------------------------------------------------------------------


class OverwritesNewer(GuardedSink):
    """Applies whatever comes, as a table without offsets does: what a zombie repeats stays."""

    def is_fresh(self, record: SinkRecord) -> bool:
        """It always is."""
        return True


class AppliesAgain(OverwritesNewer):
    """The same, and claims that each record takes effect once."""


class IgnoresTheMark(MarkingSink):
    """Moves the watermark and does not look at it."""

    def is_fresh(self, record: SinkRecord) -> bool:
        """It always is."""
        return True


class LosesKeys(GuardedSink):
    """Writes what came last of each batch, whatever its key."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """One row of a batch."""
        super().write(records[-1:])


class KeepsTheFirst(GuardedSink):
    """Leaves out keys that the batch has had already: the older value stays."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """The first row of each key."""
        super().write(list({record.key: record for record in reversed(records)}.values()))


class ForgetsDeletions(GuardedSink):
    """Keeps its offsets in the rows: of a deleted one nothing is left, and an older value comes back."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """And forget what is deleted."""
        super().write(records)
        there = self.table.newest.items()
        self.table.newest = {at: offset for at, offset in there if at[0] in self.table.rows}


class IgnoresTombstones(GuardedSink):
    """Takes a record without a value for one without content: the row stays."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """What has a value."""
        super().write([record for record in records if record.value is not None])


class MixesValues(GuardedSink):
    """Writes the values of a batch next to the keys of their neighbours."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """Shifted."""
        values = [records[-1].value, *(record.value for record in records[:-1])]
        super().write([replace(row, value=value) for row, value in zip(records, values, strict=True)])


class InventsKeys(GuardedSink):
    """Writes keys as others than they are."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """As texts."""
        super().write([replace(record, key=f"{record.key!r}".encode()) for record in records])


class HidesPoison(GuardedSink):
    """Leaves out what it cannot deliver and tells nobody."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        """The others."""
        super().write([record for record in records if record.value != POISON])


class ShowsStages(StagingSink):
    """Writes rows into the table when it stages them."""

    def stage(self, name: str, rows: list[SinkRecord]) -> None:
        """Readers see them before their commit."""
        super().stage(name, rows)
        self.write(rows)


class WritesOnClose(GuardedSink):
    """Writes what it has collected when its partitions are taken away, as well as on commit."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        """Collect."""
        self.waiting[records.partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Write."""
        for partition in offsets:
            self.write(self.waiting.pop(partition, []))
        return offsets

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Write, too."""
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
        r"key .* has the value of offset \d+ of .*, and offset \d+, which is committed,",
    ),
    AppliesAgain: (
        _EFFECTIVELY,
        r"had the value of offset|has the value of offset \d+ of .* is (newer|committed)",
    ),
    LosesKeys: (_AT_LEAST, r"lost: .*, and key .* is not at the destination"),
    KeepsTheFirst: (_AT_LEAST, r"which is committed, (deletes it|is newer)"),
    ForgetsDeletions: (_AT_LEAST, r"which is committed, deletes it"),
    IgnoresTombstones: (_AT_LEAST, r"which is committed, deletes it"),
    MixesValues: (_AT_LEAST, r"which no record has"),
    HidesPoison: (_REPORTING, "which cannot be delivered, is not in the dead letters"),
    InventsKeys: (_AT_LEAST, r"no record with it was ever put"),
    ShowsStages: (_EXACTLY, r"and only \d+ is committed"),
    WritesOnClose: (_AT_LEAST, r"close changed key"),
    IgnoresTheMark: (_EFFECTIVELY, r"had the value of offset|which is committed,"),
}
"""Sinks that do not, and what is said of them."""
