"""Correct sinks, and sinks derived from them that each break one rule.

Real sinks have broken each of these rules. :func:`~sinksdk.testing.check_sink` must catch all of them with default
settings. Each sink writes to a :class:`~sinksdk.testing.MemoryDestination`.
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
"""Records of a full file."""

# -- honest ones ---------------------------------------------------------------------------------------


class BufferingSink(SinkTask):
    """Buffers records, and writes files of three or more, on close of all: at least once.

    Files are named by first and last offset, so that no file replaces another one's records.
    """

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        self.waiting[records.partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        least = 0 if self.context.is_closing() else FILE_SIZE
        ready = {p: offset for p, offset in offsets.items() if len(self.waiting[p]) >= least}
        for partition in ready:
            self.write(partition)
        return ready

    def write(self, partition: TopicPartition) -> None:
        if records := self.waiting[partition]:
            self.destination.write(self.name(partition, records), records)
            self.waiting.pop(partition)

    def name(self, partition: TopicPartition, records: Sequence[SinkRecord]) -> str:
        return f"{partition}+{records[0].offset}-{records[-1].offset}"

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.waiting.pop(partition, None)


class FileCuttingSink(BufferingSink):
    """Ends its files between two offsets, from three records on, and keeps the rest."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        ready = dict(super().pre_commit(offsets)) if self.context.is_closing() else {}
        for partition in offsets.keys() - ready.keys():
            while len(waiting := self.waiting[partition]) >= FILE_SIZE:
                rows = waiting[: self.cut(partition, waiting)]
                self.destination.write(self.name(partition, rows), rows)
                self.waiting[partition] = waiting[len(rows) :]
                ready[partition] = OffsetAndMetadata(rows[-1].offset + 1)
        return ready

    def cut(self, partition: TopicPartition, waiting: Sequence[SinkRecord]) -> int:
        last = waiting[FILE_SIZE - 1].offset
        return sum(record.offset <= last for record in waiting)


class ReportingSink(BufferingSink):
    """Reports bad records and continues with the others."""

    def put(self, records: SinkRecords) -> None:
        for record in records:
            if record.value == POISON:
                self.report(record)
            else:
                self.waiting[records.partition].append(record)

    def report(self, record: SinkRecord) -> None:
        self.context.errant_record_reporter().report(record, DataException("it is no JSON"))


class AppendingSink(SinkTask):
    """Appends record by record, and returns how many it accepted, maybe within an offset: at least once."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination

    def put(self, records: SinkRecords) -> None:
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
        for offset, rows in itertools.groupby(records, lambda record: record.offset):
            start = offset // 4 * 4
            self.write(f"{records.partition}+{start}-{start + 3}", list(rows))

    def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
        self.destination.upsert(name, rows)


class ResumingSink(RangeSink):
    """A :class:`RangeSink` that returns how many records it accepted when it must be called again."""

    def put(self, records: SinkRecords) -> None:
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
        return RetriableException(f"offset {rows.first_offset} is not written yet", accepted=written)


class WatermarkSink(SinkTask):
    """Appends to a log with a watermark, and continues from that: effectively once."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination
        self.seen: dict[TopicPartition, int] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self.seen = {p: self.mark(p) for p in partitions}
        self.context.offset({p: mark for p, mark in self.seen.items() if mark})

    def put(self, records: SinkRecords) -> None:
        mark = self.mark(records.partition)
        if mark < self.seen.get(records.partition, 0):
            raise FencedException(f"an operator has moved the mark of {records.partition} back to {mark}")
        rows = [record for record in records if record.offset >= mark]
        if rows:
            self.destination.append(str(records.partition), rows, records.next_offset)
            self.seen[records.partition] = records.next_offset

    def mark(self, partition: TopicPartition) -> int:
        return self.destination.marks.get(str(partition), 0)


def move_mark(destination: MemoryDestination, partition: TopicPartition, offset: int | None) -> None:
    destination.move(str(partition), offset)


class TwoPhaseSink(SinkTask):
    """Prepares an upload before its first record, and publishes it after its commit: exactly once."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination
        self.uploads: dict[TopicPartition, Token] = {}
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        partition = records.partition
        if partition not in self.uploads:
            token = Token(self.destination.begin())
            self.context.prepared({partition: [token]})
            self.uploads[partition] = token
        self.waiting[partition] += records

    def pre_commit(self, offsets: Offsets) -> Offsets:
        least = 1 if self.context.is_closing() else FILE_SIZE
        ready = {}
        for partition, offset in offsets.items():
            if len(self.waiting[partition]) >= least:
                self.destination.fill(self.uploads[partition].id, self.waiting.pop(partition))
                ready[partition] = self.finished(self.uploads.pop(partition), offset)
        return ready

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        return OffsetAndMetadata(offset.offset, publish=[token])

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.destination.publish(token.id)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.destination.discard(token.id)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.uploads.pop(partition, None)
            self.waiting.pop(partition, None)


# -- broken ones: at least once ------------------------------------------------------------------------


class AcknowledgesEarly(BufferingSink):
    """Commits records that are still in memory."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        super().pre_commit(offsets)
        return offsets


class DividesAnOffset(FileCuttingSink):
    """Ends its files after three records, although more records of the last offset are buffered."""

    def cut(self, partition: TopicPartition, waiting: Sequence[SinkRecord]) -> int:
        return FILE_SIZE


class CountsOffsets(BufferingSink):
    """Writes as many records as there are offsets: several records may share one."""

    def write(self, partition: TopicPartition) -> None:
        if records := self.waiting[partition]:
            self.waiting[partition] = records[: records[-1].offset + 1 - records[0].offset]
            super().write(partition)


class NamesByStartOffset(BufferingSink):
    """A shorter file of a zombie replaces the longer one that was committed."""

    def name(self, partition: TopicPartition, records: Sequence[SinkRecord]) -> str:
        return f"{partition}+{records[0].offset}"


class FlushesAfterClose(BufferingSink):
    """Closed partitions' records are written with the next put of any other."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.late: list[TopicPartition] = []

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self.late += partitions

    def put(self, records: SinkRecords) -> None:
        while self.late:
            self.write(self.late.pop())
        super().put(records)


class IgnoresLost(BufferingSink):
    """Writes its buffer when it loses its partitions."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.write(partition)


class DropsOnRetry(RangeSink):
    """Marks a batch as done before it is, and skips it when it is put again."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.done: dict[TopicPartition, int] = {}

    def put(self, records: SinkRecords) -> None:
        if records.next_offset > self.done.get(records.partition, 0):
            self.done[records.partition] = records.next_offset
            super().put(records)


class LetsOffsetsGoBack(BufferingSink):
    """Returns the start offset of its last file."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.began: dict[TopicPartition, int] = {}

    def pre_commit(self, offsets: Offsets) -> Offsets:
        ready = dict(super().pre_commit(offsets))
        for partition in offsets:
            if partition in self.began:
                ready.setdefault(partition, OffsetAndMetadata(self.began[partition]))
        return ready

    def write(self, partition: TopicPartition) -> None:
        if self.waiting[partition]:
            self.began[partition] = self.waiting[partition][0].offset
        super().write(partition)


class ClosesEverything(BufferingSink):
    """Forgets all partitions when one is closed."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self.waiting.clear()


class SwallowsErrors(BufferingSink):
    """Continues after a failed write as if it had succeeded."""

    def write(self, partition: TopicPartition) -> None:
        try:
            super().write(partition)
        except ConnectException:
            self.waiting.pop(partition)


class MixesPartitions(BufferingSink):
    """Writes the buffers of all partitions into the file of one."""

    def write(self, partition: TopicPartition) -> None:
        mixed = [record for waiting in self.waiting.values() for record in waiting]
        if mixed:
            topic, number = partition
            rows = [replace(record, topic=topic, partition=number) for record in mixed]
            self.destination.write(self.name(partition, rows), rows)
            self.waiting.clear()


class DropsTheTail(BufferingSink):
    """Ignores is_closing(), so that a partial file is never committed."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        ready = {p: offset for p, offset in offsets.items() if len(self.waiting[p]) >= FILE_SIZE}
        for partition in ready:
            self.write(partition)
        return ready


class TopicBlind(BufferingSink):
    """Names files without their topic, so that partitions of the same number replace each other's files."""

    def name(self, partition: TopicPartition, records: Sequence[SinkRecord]) -> str:
        return f"{partition.partition}+{records[0].offset}-{records[-1].offset}"


class DropsNulls(BufferingSink):
    """Drops records without a value."""

    def put(self, records: SinkRecords) -> None:
        self.waiting[records.partition] += [record for record in records if record.value is not None]


class DropsEmpty(BufferingSink):
    """Drops empty values."""

    def write(self, partition: TopicPartition) -> None:
        self.waiting[partition] = [r for r in self.waiting[partition] if r.value or r.value is None]
        super().write(partition)


class DropsKeyless(BufferingSink):
    """Drops records without a key."""

    def put(self, records: SinkRecords) -> None:
        self.waiting[records.partition] += [record for record in records if record.key is not None]


class HidesPoison(ReportingSink):
    """Skips bad records silently."""

    def report(self, record: SinkRecord) -> None:
        """Report nothing."""


class CountsRefusedRecords(ResumingSink):
    """Counts the record that it could not write as accepted."""

    def unfinished(self, rows: SinkRecords, written: int) -> RetriableException:
        return super().unfinished(rows, written + len(rows))


class LosesAcceptedRecords(BufferingSink):
    """Writes files in put, and drops accepted records from its buffer when that fails."""

    def put(self, records: SinkRecords) -> None:
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
    """Ignores altered offsets: the watermark does not move, so the task requests the old position again."""


class SkipsBelowItsLastRow(WatermarkSink):
    """Skips all offsets below its last row, also those that an operator had skipped and now wants to be read."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Begin at the commit."""

    def mark(self, partition: TopicPartition) -> int:
        rows = self.destination.visible.get(str(partition))
        return max((row.offset + 1 for row in rows), default=0) if rows else 0


class CountsInItsMetadata(BufferingSink):
    """Expects its own metadata with each commit; altered offsets have none."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        super().open(partitions)
        commits = (self.context.committed(partition) for partition in partitions)
        self.files = sum(int(commit.metadata) for commit in commits if commit is not None)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.files += 1
        return {
            partition: OffsetAndMetadata(offset.offset, str(self.files))
            for partition, offset in super().pre_commit(offsets).items()
        }


class AppendsAgain(RangeSink):
    """Appends rows instead of replacing them, so a retry writes them twice."""

    def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
        self.destination.append(name, rows)


class KeysByOffset(RangeSink):
    """Has one row per offset: of several records of an offset, the last one stays."""

    def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
        for row in rows:
            self.destination.upsert(name, [row])


class KeepsItsBuffer(TwoPhaseSink):
    """Keeps its buffer over close, and writes it again with the records that are read again."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.uploads.pop(partition, None)


class PublishesBeforeCommit(TwoPhaseSink):
    """Publishes uploads before their commit."""

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        self.destination.publish(token.id)
        return super().finished(token, offset)


class DiscardsWhenFenced(TwoPhaseSink):
    """Discards its uploads when it loses its partitions, although its last commit may have taken effect."""

    def __init__(self, destination: MemoryDestination) -> None:
        super().__init__(destination)
        self.begun: dict[TopicPartition, list[str]] = defaultdict(list)

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        self.begun[TopicPartition("", 0)].append(token.id)
        return super().finished(token, offset)

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        super().publish(partition, tokens)
        self.begun.clear()

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for token in self.begun.pop(TopicPartition("", 0), []):
            self.destination.discard(token)
        super().close(partitions)


class ForgetsTokens(TwoPhaseSink):
    """Returns no tokens from its closing commit."""

    def finished(self, token: Token, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        return offset if self.context.is_closing() else super().finished(token, offset)


class PublishesTwice(TwoPhaseSink):
    """Publishes in two steps: after a crash in between the next owner repeats the first one."""

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.destination.append(str(partition), self.destination.staged.get(token.id, []))
            self.destination.discard(token.id)


class DiscardsNothing(TwoPhaseSink):
    """Ignores discard."""

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Discard nothing, without an error."""


class ReusesIds(TwoPhaseSink):
    """Names an upload by its first offset, so that the next attempt reuses it."""

    def put(self, records: SinkRecords) -> None:
        partition = records.partition
        if partition not in self.uploads:
            name = f"{partition}+{records.first_offset}"
            self.context.prepared({partition: [Token(name)]})
            self.destination.staged.setdefault(name, [])
            self.uploads[partition] = Token(name)
        self.waiting[partition] += records


class DiscardsOthers(TwoPhaseSink):
    """Discards all uploads of a partition, not only those of the given tokens."""

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        super().discard(partition, tokens)
        for name, rows in list(self.destination.staged.items()):
            if rows and rows[0].topic_partition == partition:
                self.destination.discard(name)


class NotesTooLate(TwoPhaseSink):
    """Fills an upload before it is prepared: a crash leaves it behind without a token."""

    def put(self, records: SinkRecords) -> None:
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
    """A sink, and its declared capabilities.

    Args:
        alter: its connector's ``alter_offsets``.
        record: creates the records to put.
    """

    make_task: type[BufferingSink | AppendingSink | RangeSink | WatermarkSink | TwoPhaseSink]
    capabilities: Capabilities
    alter: Callable[[MemoryDestination, TopicPartition, int | None], object] | None = None
    record: Callable[[TopicPartition, int], SinkRecord] = json_record

    @property
    def name(self) -> str:
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
            *(TopicBlind, DropsNulls, DropsKeyless, LosesAcceptedRecords, DividesAnOffset, CountsOffsets),
            CountsInItsMetadata,
        )
    ),
    Specimen(DropsEmpty, _AT_LEAST, record=bytes_record),
    Specimen(HidesPoison, _REPORTING),
    Specimen(DropsOnRetry, _EFFECTIVELY),
    Specimen(CountsRefusedRecords, _EFFECTIVELY),
    Specimen(AppendsAgain, _EFFECTIVELY),
    Specimen(KeysByOffset, _EFFECTIVELY),
    Specimen(OverrulesTheOperator, _EFFECTIVELY),
    Specimen(SkipsBelowItsLastRow, _EFFECTIVELY),
    *(
        Specimen(make_task, _EXACTLY)
        for make_task in (
            *(KeepsItsBuffer, PublishesBeforeCommit, DiscardsWhenFenced, ForgetsTokens, PublishesTwice),
            *(DiscardsNothing, NotesTooLate, ReusesIds, DiscardsOthers),
        )
    ),
)
"""Sinks that break it."""
