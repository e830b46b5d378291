"""Sinks that are wrong on purpose, and what they are made of: honest ones.

Each breaks one rule that real sinks have broken. The kit's own tests see to it that
:func:`~sinksdk.testing.check_sink` catches all of them with its default settings; reading them shows
what it can see. Each writes to a :class:`~sinksdk.testing.MemoryDestination`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sinksdk.errors import ConnectException, DataException, FencedException, RetriableException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.task import SinkTask
from sinksdk.testing.contract import POISON, Capabilities, Guarantee, bytes_record, json_record
from sinksdk.testing.doubles import MemoryDestination

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

FILE_SIZE: Final = 3
"""Records that make a file."""

# -- honest ones ---------------------------------------------------------------------------------------


class BufferingSink(SinkTask):
    """Collects records, writes files of three or more, and what there is on close: at least once.

    Files are named by first and last offset, so that no file replaces another one's records.
    """

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        """Collect."""
        self.waiting[records.partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Write what makes a file; on close, everything."""
        least = 0 if self.context.is_closing() else FILE_SIZE
        ready = {p: offset for p, offset in offsets.items() if len(self.waiting[p]) >= least}
        for partition in ready:
            self.write(partition)
        return ready

    def write(self, partition: TopicPartition) -> None:
        """Write what waits, then forget it: in this order."""
        if records := self.waiting[partition]:
            self.destination.write(self.name(partition, records), records)
            self.waiting.pop(partition)

    def name(self, partition: TopicPartition, records: Sequence[SinkRecord]) -> str:
        """Name of a file."""
        return f"{partition}+{records[0].offset}-{records[-1].offset}"

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was not written: it is read again."""
        for partition in partitions:
            self.waiting.pop(partition, None)


class FileCuttingSink(BufferingSink):
    """Ends its files between two offsets, as soon as there are three records, and keeps the rest."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Write whole files, on close all there is; return the end of the last one."""
        ready = dict(super().pre_commit(offsets)) if self.context.is_closing() else {}
        for partition in offsets.keys() - ready.keys():
            while len(waiting := self.waiting[partition]) >= FILE_SIZE:
                rows = waiting[: self.cut(partition, waiting)]
                self.destination.write(self.name(partition, rows), rows)
                self.waiting[partition] = waiting[len(rows) :]
                ready[partition] = OffsetAndMetadata(rows[-1].offset + 1)
        return ready

    def cut(self, partition: TopicPartition, waiting: Sequence[SinkRecord]) -> int:
        """How many of these make a file: no record of its last offset stays behind."""
        last = waiting[FILE_SIZE - 1].offset
        return sum(record.offset <= last for record in waiting)


class ReportingSink(BufferingSink):
    """Reports what it cannot deliver, and goes on with the others."""

    def put(self, records: SinkRecords) -> None:
        """Collect what can be delivered."""
        for record in records:
            if record.value == POISON:
                self.report(record)
            else:
                self.waiting[records.partition].append(record)

    def report(self, record: SinkRecord) -> None:
        """Send a record to the dead letters."""
        self.context.errant_record_reporter().report(record, DataException("it is no JSON"))


class AppendingSink(SinkTask):
    """Appends record by record, and says how far it came, maybe between two of one offset: at least once."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination

    def put(self, records: SinkRecords) -> None:
        """Append each record; those that are there need not come again."""
        for written, record in enumerate(records):
            try:
                self.destination.append(str(records.partition), [record])
            except RetriableException as error:
                raise RetriableException(str(error), accepted=written) from error


class RangeSink(SinkTask):
    """Writes rows with keys into tables of four offsets each: idempotent, so effectively once.

    The rows of one offset are written together: a transform may have made several of it.
    """

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination

    def put(self, records: SinkRecords) -> None:
        """Write the records of each offset to the table whose range of offsets holds it."""
        for offset, rows in itertools.groupby(records, lambda record: record.offset):
            start = offset // 4 * 4
            self.write(f"{records.partition}+{start}-{start + 3}", list(rows))

    def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
        """Insert or replace the rows of one offset."""
        self.destination.upsert(name, rows)


class ResumingSink(RangeSink):
    """As :class:`RangeSink`, and says how far it came when it asks to be called again."""

    def put(self, records: SinkRecords) -> None:
        """Write the records of each offset; those that are written need not come again."""
        written = 0
        while written < len(records):
            rest = records[written:]
            rows = rest[: rest.whole_offsets(1)]
            try:
                super().put(rows)
            except RetriableException as error:
                raise self.unfinished(rows, written) from error
            written += len(rows)

    def unfinished(self, rows: SinkRecords, written: int) -> RetriableException:
        """What to raise when these could not be written yet, and so many before them were."""
        return RetriableException(f"offset {rows.first_offset} is not written yet", accepted=written)


class WatermarkSink(SinkTask):
    """Appends to a log that says how far it goes, and goes on from there: effectively once."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination
        self.seen: dict[TopicPartition, int] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Ask for what the log does not have yet."""
        self.seen = {p: self.mark(p) for p in partitions}
        self.context.offset({p: mark for p, mark in self.seen.items() if mark})

    def put(self, records: SinkRecords) -> None:
        """Append what is new: an answer may have been lost."""
        mark = self.mark(records.partition)
        if mark < self.seen.get(records.partition, 0):
            raise FencedException(f"an operator has moved the mark of {records.partition} back to {mark}")
        rows = [record for record in records if record.offset >= mark]
        if rows:
            self.destination.append(str(records.partition), rows, records.next_offset)
            self.seen[records.partition] = records.next_offset

    def mark(self, partition: TopicPartition) -> int:
        """How far a partition's log goes."""
        return self.destination.marks.get(str(partition), 0)


def move_mark(destination: MemoryDestination, partition: TopicPartition, offset: int | None) -> None:
    """What ``alter_offsets`` of a connector with :class:`WatermarkSink` does."""
    destination.move(str(partition), offset)


class TwoPhaseSink(SinkTask):
    """Notes an upload before its first record, fills it, and publishes it after its commit: exactly once."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination
        self.uploads: dict[TopicPartition, Token] = {}
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        """Begin an upload where there is none, note it, collect."""
        partition = records.partition
        if partition not in self.uploads:
            token = Token(self.destination.begin())
            self.context.prepared({partition: [token]})
            self.uploads[partition] = token
        self.waiting[partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Fill what makes a file (on close, everything), and hand its token over to be published."""
        least = 1 if self.context.is_closing() else FILE_SIZE
        ready = {}
        for partition, offset in offsets.items():
            if len(self.waiting[partition]) >= least:
                self.destination.fill(self.uploads[partition].id, self.waiting.pop(partition))
                ready[partition] = self.finished(self.uploads.pop(partition), offset)
        return ready

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        """What is committed with a finished upload."""
        return OffsetAndMetadata(offset.offset, publish=[token])

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Make uploads visible; twice is as good as once."""
        for token in tokens:
            self.destination.publish(token.id)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Remove uploads that no commit covers."""
        for token in tokens:
            self.destination.discard(token.id)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget uploads; a noted one may have been committed, so that it is not for us to remove."""
        for partition in partitions:
            self.uploads.pop(partition, None)
            self.waiting.pop(partition, None)


# -- broken ones: at least once ------------------------------------------------------------------------


class AcknowledgesEarly(BufferingSink):
    """Says that everything is durable, also what still waits in memory."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Write what makes a file, and return everything."""
        super().pre_commit(offsets)
        return offsets


class DividesAnOffset(FileCuttingSink):
    """Ends its files after three records, though more of the last one's offset wait in its buffer."""

    def cut(self, partition: TopicPartition, waiting: Sequence[SinkRecord]) -> int:
        """Three, whatever their offsets."""
        return FILE_SIZE


class CountsOffsets(BufferingSink):
    """Takes as many records for the file as there are offsets in it: more of them share one."""

    def write(self, partition: TopicPartition) -> None:
        """Write as many records as offsets, forget all."""
        if records := self.waiting[partition]:
            self.waiting[partition] = records[: records[-1].offset + 1 - records[0].offset]
            super().write(partition)


class NamesByStartOffset(BufferingSink):
    """A shorter file of a zombie replaces the longer one that was committed."""

    def name(self, partition: TopicPartition, records: Sequence[SinkRecord]) -> str:
        """Name a file by its first offset only."""
        return f"{partition}+{records[0].offset}"


class FlushesAfterClose(BufferingSink):
    """Closed partitions' records are written with the next put of any other."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.late: list[TopicPartition] = []

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Leave it for later."""
        self.late += partitions

    def put(self, records: SinkRecords) -> None:
        """Write what was left."""
        while self.late:
            self.write(self.late.pop())
        super().put(records)


class IgnoresLost(BufferingSink):
    """Writes what it has when its partitions are taken away, whoever owns them now."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Write."""
        for partition in partitions:
            self.write(partition)


class DropsOnRetry(RangeSink):
    """Remembers a batch as done before it is done, and skips it when it is put again."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.done: dict[TopicPartition, int] = {}

    def put(self, records: SinkRecords) -> None:
        """Write what is new."""
        if records.next_offset > self.done.get(records.partition, 0):
            self.done[records.partition] = records.next_offset
            super().put(records)


class LetsOffsetsGoBack(BufferingSink):
    """Returns the offset where its last file began."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.began: dict[TopicPartition, int] = {}

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Return an old offset where nothing was written."""
        ready = dict(super().pre_commit(offsets))
        for partition in offsets:
            if partition in self.began:
                ready.setdefault(partition, OffsetAndMetadata(self.began[partition]))
        return ready

    def write(self, partition: TopicPartition) -> None:
        """Remember where the file began."""
        if self.waiting[partition]:
            self.began[partition] = self.waiting[partition][0].offset
        super().write(partition)


class ClosesEverything(BufferingSink):
    """Forgets all partitions when it is asked to close one."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget everything."""
        self.waiting.clear()


class SwallowsErrors(BufferingSink):
    """Goes on when writing failed, as if it had not."""

    def write(self, partition: TopicPartition) -> None:
        """Write, or not."""
        try:
            super().write(partition)
        except ConnectException:
            self.waiting.pop(partition)


class MixesPartitions(BufferingSink):
    """Writes what waits of all partitions into the file of one."""

    def write(self, partition: TopicPartition) -> None:
        """Write everything as if it were of this partition."""
        mixed = [record for waiting in self.waiting.values() for record in waiting]
        if mixed:
            topic, number = partition
            rows = [replace(record, topic=topic, partition=number) for record in mixed]
            self.destination.write(self.name(partition, rows), rows)
            self.waiting.clear()


class DropsTheTail(BufferingSink):
    """Does not look at is_closing(): what makes no whole file is never committed."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Write whole files only."""
        ready = {p: offset for p, offset in offsets.items() if len(self.waiting[p]) >= FILE_SIZE}
        for partition in ready:
            self.write(partition)
        return ready


class TopicBlind(BufferingSink):
    """Names files without their topic: another topic's partition of the same number replaces them."""

    def name(self, partition: TopicPartition, records: Sequence[SinkRecord]) -> str:
        """Name a file by number and offsets only."""
        return f"{partition.partition}+{records[0].offset}-{records[-1].offset}"


class DropsNulls(BufferingSink):
    """Takes a record without a value for one without content."""

    def put(self, records: SinkRecords) -> None:
        """Collect what has a value."""
        self.waiting[records.partition] += [record for record in records if record.value is not None]


class DropsEmpty(BufferingSink):
    """Takes an empty value for none, and that for nothing to write."""

    def write(self, partition: TopicPartition) -> None:
        """Leave out what looks like nothing."""
        self.waiting[partition] = [r for r in self.waiting[partition] if r.value or r.value is None]
        super().write(partition)


class DropsKeyless(BufferingSink):
    """Leaves out what has no key."""

    def put(self, records: SinkRecords) -> None:
        """Collect what has a key."""
        self.waiting[records.partition] += [record for record in records if record.key is not None]


class HidesPoison(ReportingSink):
    """Skips what it cannot deliver and tells nobody."""

    def report(self, record: SinkRecord) -> None:
        """Say nothing."""


class CountsTheRefused(ResumingSink):
    """Says that it has taken the record that it could not write, too."""

    def unfinished(self, rows: SinkRecords, written: int) -> RetriableException:
        """Too many."""
        return super().unfinished(rows, written + len(rows))


class ForgetsWhatItTook(BufferingSink):
    """Writes whole files from put, and forgets its buffer when that fails, with what it says it has taken."""

    def put(self, records: SinkRecords) -> None:
        """Collect one by one; write whenever there is a file."""
        for taken, record in enumerate(records):
            self.waiting[records.partition].append(record)
            if len(self.waiting[records.partition]) >= FILE_SIZE:
                try:
                    self.write(records.partition)
                except RetriableException as error:
                    self.waiting.pop(records.partition)
                    raise RetriableException(str(error), accepted=taken) from error


# -- broken ones: effectively and exactly once ---------------------------------------------------------


class OverrulesTheOperator(WatermarkSink):
    """Its connector's alter_offsets leaves the mark where it is: the old position is asked for again."""


class TakesWhatItHasForAll(WatermarkSink):
    """Passes over what is below its last row, though an operator may have passed over some of that before."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Go on at the commit."""

    def mark(self, partition: TopicPartition) -> int:
        """The offset after the last row."""
        rows = self.destination.visible.get(str(partition))
        return max((row.offset + 1 for row in rows), default=0) if rows else 0


class CountsInItsMetadata(BufferingSink):
    """Expects metadata of its own with each commit; those that an operator has set have none."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Go on counting."""
        super().open(partitions)
        commits = (self.context.committed(partition) for partition in partitions)
        self.files = sum(int(commit.metadata) for commit in commits if commit is not None)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Count on."""
        self.files += 1
        return {
            partition: OffsetAndMetadata(offset.offset, str(self.files))
            for partition, offset in super().pre_commit(offsets).items()
        }


class AppendsAgain(RangeSink):
    """Appends rows instead of replacing them, so that a retry writes them twice."""

    def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
        """Add rows."""
        self.destination.append(name, rows)


class KeysByOffset(RangeSink):
    """Takes an offset for the key of one row: of several records that share it, the last one stays."""

    def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
        """Insert or replace one row after the other."""
        for row in rows:
            self.destination.upsert(name, [row])


class KeepsItsBuffer(TwoPhaseSink):
    """Keeps what it collected over close; it is written together with what is read again."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget uploads, but not their records."""
        for partition in partitions:
            self.uploads.pop(partition, None)


class PublishesBeforeCommit(TwoPhaseSink):
    """Makes uploads visible before anything is committed."""

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        """Publish."""
        self.destination.publish(token.id)
        return super().finished(token, offset)


class DiscardsWhenFenced(TwoPhaseSink):
    """Cleans up after itself when it loses its partitions; its last commit may have happened all the same."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.begun: dict[TopicPartition, list[str]] = defaultdict(list)

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        """Remember what is not published yet."""
        self.begun[TopicPartition("", 0)].append(token.id)
        return super().finished(token, offset)

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Forget what is published."""
        super().publish(partition, tokens)
        self.begun.clear()

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Remove what was not published."""
        for token in self.begun.pop(TopicPartition("", 0), []):
            self.destination.discard(token)
        super().close(partitions)


class ForgetsTokens(TwoPhaseSink):
    """On close it commits offsets without the tokens that have to be published for them."""

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        """Return the offset only."""
        return offset if self.context.is_closing() else super().finished(token, offset)


class PublishesTwice(TwoPhaseSink):
    """Publishes in two steps: a crash in between lets the next owner do the first one again."""

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Append what was filled to what readers see, then remove it."""
        for token in tokens:
            self.destination.append(str(partition), self.destination.staged.get(token.id, []))
            self.destination.discard(token.id)


class DiscardsNothing(TwoPhaseSink):
    """Leaves uploads that no commit covers where they are."""

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Do nothing, as if it were done."""


class ReusesIds(TwoPhaseSink):
    """Names an upload by its first offset, so that the next attempt finds what is there."""

    def put(self, records: SinkRecords) -> None:
        """Begin, or find, the upload of the first offset."""
        partition = records.partition
        if partition not in self.uploads:
            name = f"{partition}+{records.first_offset}"
            self.context.prepared({partition: [Token(name)]})
            self.destination.staged.setdefault(name, [])
            self.uploads[partition] = Token(name)
        self.waiting[partition] += records


class DiscardsOthers(TwoPhaseSink):
    """Removes all uploads of a partition, not only those that it is given."""

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Remove whatever is there of the partition."""
        super().discard(partition, tokens)
        for name, rows in list(self.destination.staged.items()):
            if rows and rows[0].topic_partition == partition:
                self.destination.discard(name)


class NotesTooLate(TwoPhaseSink):
    """Fills an upload before it is noted: a crash leaves it behind, and nobody knows of it."""

    def put(self, records: SinkRecords) -> None:
        """Begin, fill, then note."""
        partition = records.partition
        self.waiting[partition] += records
        if partition in self.uploads:
            return
        name = self.destination.begin()
        self.destination.fill(name, self.waiting[partition])
        self.uploads[partition] = Token(name)
        self.context.prepared({partition: [self.uploads[partition]]})


@dataclass(frozen=True)
class Specimen:
    """A sink, and what it claims to be.

    Args:
        make_task: makes it.
        capabilities: what it claims.
        alter: what its connector's ``alter_offsets`` does.
        record: makes the records that it is tried with.
    """

    make_task: type[BufferingSink | AppendingSink | RangeSink | WatermarkSink | TwoPhaseSink]
    capabilities: Capabilities
    alter: Callable[[MemoryDestination, TopicPartition, int | None], object] | None = None
    record: Callable[[TopicPartition, int], SinkRecord] = json_record

    @property
    def name(self) -> str:
        """What it is called."""
        return self.make_task.__name__


_AT_LEAST = Capabilities(Guarantee.AT_LEAST_ONCE)
_EFFECTIVELY = Capabilities(Guarantee.EFFECTIVELY_ONCE)
_EXACTLY = Capabilities(Guarantee.EXACTLY_ONCE, ordered=True)
_REPORTING = Capabilities(dead_letters=True)

HONEST: Final = (
    Specimen(BufferingSink, _AT_LEAST),
    Specimen(FileCuttingSink, _AT_LEAST, record=bytes_record),
    Specimen(AppendingSink, _AT_LEAST),
    Specimen(ReportingSink, _REPORTING),
    Specimen(RangeSink, _EFFECTIVELY),
    Specimen(ResumingSink, _EFFECTIVELY),
    Specimen(WatermarkSink, _EFFECTIVELY, move_mark),
    Specimen(TwoPhaseSink, _EXACTLY, record=bytes_record),
)
"""Sinks that keep their promise."""

BROKEN: Final = (
    *(
        Specimen(make_task, _AT_LEAST)
        for make_task in (
            *(AcknowledgesEarly, NamesByStartOffset, FlushesAfterClose, IgnoresLost, LetsOffsetsGoBack),
            *(ClosesEverything, SwallowsErrors, MixesPartitions, DropsTheTail),
            *(TopicBlind, DropsNulls, DropsKeyless, ForgetsWhatItTook, DividesAnOffset, CountsOffsets),
            CountsInItsMetadata,
        )
    ),
    Specimen(DropsEmpty, _AT_LEAST, record=bytes_record),
    Specimen(HidesPoison, _REPORTING),
    Specimen(DropsOnRetry, _EFFECTIVELY),
    Specimen(CountsTheRefused, _EFFECTIVELY),
    Specimen(AppendsAgain, _EFFECTIVELY),
    Specimen(KeysByOffset, _EFFECTIVELY),
    Specimen(OverrulesTheOperator, _EFFECTIVELY),
    Specimen(TakesWhatItHasForAll, _EFFECTIVELY),
    *(
        Specimen(make_task, _EXACTLY)
        for make_task in (
            *(KeepsItsBuffer, PublishesBeforeCommit, DiscardsWhenFenced, ForgetsTokens, PublishesTwice),
            *(DiscardsNothing, NotesTooLate, ReusesIds, DiscardsOthers),
        )
    ),
)
"""Sinks that do not."""
