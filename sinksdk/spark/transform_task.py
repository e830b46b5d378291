"""Runs a task with a transform: one Python worker reads, Spark's operators follow, another worker sinks."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.config import CONSUMER_OVERRIDES
from sinksdk.engine.task_run import Unread
from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.plugins.classes import sink_class
from sinksdk.records import RECORD_COLUMNS, SinkRecords
from sinksdk.spark.bypass import Columns, Receiver, Sender
from sinksdk.store import Store, newest_plan
from sinksdk.values.text import is_bytes
from sinksdk.worker.attempts import prepared_process
from sinksdk.worker.generation_spec import GenerationSpec, unpacked
from sinksdk.worker.sink_task import ReadAhead, run_attempt
from sinksdk.worker.task_result import to_row

TYPES: Final[Mapping[str, str]] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
REPORT: Final = "report string"
READ: Final = "sinksdk_records"  # names in Spark's plans
SINK: Final = "sinksdk_sink"

_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
# pyspark's ``SpecialLengths.END_OF_STREAM``, at the end of a worker's input.
_CLEAN_END: Final = b"\xff\xff\xff\xfc"

Ranges = Mapping[TopicPartition, OffsetRange]
Rows = Iterator[pa.RecordBatch]


class _ReadFailure(ConnectException):
    """The reading worker has failed."""


class _TaskChannel:
    """Messages between the two workers of a task, as files in Spark's folder, which Spark removes."""

    def __init__(self, folder: Path, attempt: str) -> None:
        self._messages = folder / f"sinksdk-{attempt}-messages"
        self._stop = folder / f"sinksdk-{attempt}-stop"
        self.columns = folder / f"sinksdk-{attempt}-columns"

    @classmethod
    def of_this_task(cls, spec: GenerationSpec) -> _TaskChannel:
        from pyspark import SparkFiles  # noqa: PLC0415 - loaded by the worker

        folder = SparkFiles.getRootDirectory()
        if not os.access(folder, os.W_OK):
            folder = tempfile.gettempdir()
        return cls(Path(folder), f"{spec.store_id}-{spec.generation}-{_spark_task().taskAttemptId()}")

    def send(self, news: Unread | ConnectException) -> None:
        # The message is sent before any later row is passed to Spark.
        with self._messages.open("ab") as file:
            pickle.dump(news, file)

    def received(self) -> list[Unread | ConnectException]:
        news = []
        # A message that is only partly written concerns later rows.
        whole = suppress(EOFError, pickle.UnpicklingError)
        with suppress(FileNotFoundError), self._messages.open("rb") as file, whole:
            while True:
                news.append(pickle.load(file))  # noqa: S301 - our own, of the same task
        return news

    def stop(self) -> None:
        self._stop.touch()

    def is_stopped(self) -> bool:
        return self._stop.exists()

    def remove(self) -> None:
        self._messages.unlink(missing_ok=True)
        self._stop.unlink(missing_ok=True)
        self.columns.unlink(missing_ok=True)


def _spark_task() -> Any:
    from pyspark import TaskContext  # noqa: PLC0415 - loaded by the worker

    return TaskContext.get()


# -- the reading worker ----------------------------------------------------------------------------------


def reads(spec: GenerationSpec, columns: Columns) -> Callable[[Rows], Rows]:
    def sinksdk_records(control: Rows) -> Rows:
        deque(control, maxlen=0)
        return _read(spec, columns, _spark_task().partitionId(), _TaskChannel.of_this_task(spec))

    return sinksdk_records


def _read(spec: GenerationSpec, columns: Columns, task: int, channel: _TaskChannel) -> Rows:
    sender: Sender | None = None
    try:
        # The subject of log lines must not stay set across a yield: only the opening of the store has one.
        with prepared_process(spec, task) as store:
            unread = _batches(spec, store, columns, task)
        with closing(unread) as batches:
            for item in batches:
                if channel.is_stopped():
                    return
                if isinstance(item, Unread):
                    channel.send(item)
                elif item is not None:
                    if columns.bypassing:
                        sender = sender or Sender.to(channel.columns, columns)
                    yield sent(item, columns, sender)
    except GeneratorExit:
        raise
    except Exception as error:  # noqa: BLE001 - raised by the sinking worker
        channel.send(_ReadFailure(f"cannot read the task's input: {type(error).__name__}: {error}"))
    finally:
        if sender is not None:
            sender.close()


def _batches(
    spec: GenerationSpec, store: Store, columns: Columns, task: int
) -> Generator[SinkRecords | Unread | None]:
    _, plan = newest_plan(store, spec.connector)
    if plan is None or plan.generation != spec.generation:
        raise ConnectException(f"generation {spec.generation} was replaced by a newer one")
    mine = plan.tasks[task]
    raw = {**plan.config, **mine.config}
    config = sink_class(raw.get("connector.class", "")).config_class.parse(raw)
    ranges = {item.topic_partition: item.offsets for item in mine.ranges}
    yield from unpacked(spec.readers[task]).read(ranges, columns.needed, config.overrides(CONSUMER_OVERRIDES))


def sent(records: SinkRecords, columns: Columns, sender: Sender | None) -> pa.RecordBatch:
    """Build Spark's rows. Bypassing columns go into the file if it has room, else into the carrier."""
    place = sender.send(records) if sender is not None and len(records) else None
    count, names = len(records), columns.in_rows
    rows = {name: _of_column(records, name) for name in names if name not in ("partition", columns.carrier)}
    number = records.partition.partition if place is None else place
    rows["partition"] = pa.repeat(pa.scalar(number, pa.int32()), count)
    if (carrier := columns.carrier) is not None:
        rows[carrier] = pa.nulls(count, pa.binary())
        if place is None:
            whole = [_of_column(records, name) for name in columns.packed]
            rows[carrier] = columns.pack(whole)
    if "timestamp" in rows:
        rows["timestamp"] = _as_sparks(records, rows["timestamp"])
    whole_rows = pa.RecordBatch.from_pydict({name: rows[name] for name in names})
    return whole_rows if place is not None else columns.counted(whole_rows)


def _of_column(records: SinkRecords, name: str) -> pa.Array:
    if name == "topic":
        return pa.repeat(pa.scalar(records.partition.topic), len(records))
    kind, index = RECORD_COLUMNS[name], records.arrow.schema.get_field_index(name)
    column = records.arrow.column(index) if index >= 0 else pa.nulls(len(records), kind)
    return column if name == "timestamp" or column.type == kind else column.cast(kind)


def _as_sparks(records: SinkRecords, timestamps: pa.Array) -> pa.Array:
    try:
        return timestamps.cast(_MICROSECONDS)
    except pa.ArrowInvalid as error:
        raise ConnectException(
            f"{records.partition}, offsets {records.first_offset} to {records.next_offset - 1}: cannot "
            f"transform a timestamp beyond Spark's range (microseconds in 64 bits): {error}"
        ) from error


# -- the sinking worker ----------------------------------------------------------------------------------


def sinks(spec: GenerationSpec, columns: Columns) -> Callable[[Rows], Rows]:
    def sinksdk_sink(given: Rows) -> Rows:
        channel, has_ended = _TaskChannel.of_this_task(spec), _end_of(_input_of_worker())
        receiver: Receiver | None = None
        if columns.bypassing:
            receiver = Receiver(channel.columns, columns)
        rows = given if receiver is None else receiver.received(given)
        ahead: list[ReadAhead] = []

        @contextmanager
        def read(_ranges: Ranges, _overrides: Mapping[str, str]) -> Iterator[ReadAhead]:
            ahead.append(ReadAhead(arranged(rows, channel.received, has_ended)))
            try:
                yield ahead[0]
            finally:
                # Stops the reading worker, or close() would wait for a thread that waits for rows.
                channel.stop()
                ahead[0].close()

        number = _spark_task().partitionId()
        try:
            with prepared_process(spec, number) as store:
                report = run_attempt(spec, store, number, read)
        finally:
            channel.stop()
            if not any(reader.is_reading for reader in ahead):
                deque(given, maxlen=0)  # a broken pipe would end the reading worker
                if receiver is not None:
                    receiver.close()
                if has_ended():
                    channel.remove()
        yield pa.RecordBatch.from_pydict({"report": [to_row(report)]})

    return sinksdk_sink


def arranged(
    rows: Iterable[pa.RecordBatch],
    received: Callable[[], Iterable[Unread | ConnectException]],
    has_ended: Callable[[], bool],
) -> Generator[SinkRecords | Unread]:
    """Convert transformed rows to batches of one partition, with all records of an offset in one batch."""
    reported: set[TopicPartition] = set()

    def left(partitions: Collection[TopicPartition] | None = None) -> Iterator[Unread]:
        for item in received():
            is_meant = partitions is None or (isinstance(item, Unread) and item.partition in partitions)
            if is_meant and isinstance(item, Unread) and item.partition not in reported:
                reported.add(item.partition)
                yield item

    def check_end() -> None:
        if failure := next((item for item in received() if isinstance(item, ConnectException)), None):
            raise failure
        # ``rows`` also ends after an error in an operator.
        if not has_ended():
            raise ConnectException(
                "the transform failed or was cancelled: rows that may be incomplete are not committed"
            )

    before: TopicPartition | None = None
    for records in _whole_offsets(rows, check_end):
        if before is not None and before != records.partition:
            yield from left((before,))
        before = records.partition
        yield records
    yield from left()


def _whole_offsets(rows: Iterable[pa.RecordBatch], check_end: Callable[[], None]) -> Generator[SinkRecords]:
    held: SinkRecords | None = None
    for batch in rows:
        for records in _by_partition(batch):
            *whole, held = _split(held, records)
            yield from whole
    check_end()
    if held is not None:
        yield held


def _split(held: SinkRecords | None, records: SinkRecords) -> list[SinkRecords]:
    if held is None:
        return [records]
    if held.partition != records.partition or held.next_offset - 1 != records.first_offset:
        return [held, records]
    # The last piece may continue in the next batch.
    shared, begin = records.whole_offsets(1), int(np.searchsorted(held.offsets, records.first_offset))
    both = pa.concat_batches([held.arrow[begin:], records.arrow[:shared]])
    pieces = [held[:begin], SinkRecords(held.partition, both), records[shared:]]
    return [piece for piece in pieces if len(piece)]


def _by_partition(batch: pa.RecordBatch) -> Iterator[SinkRecords]:
    for name in {"topic", "partition", "offset"} & set(batch.schema.names):
        if batch.column(name).null_count:
            raise ConnectException(
                f"the transform returns a row whose {name} is null: topic, partition and offset must stay "
                f"unchanged (check outer joins and expressions for them)"
            )
    if not batch.num_rows:
        return
    if "headers" in batch.schema.names:
        _check_headers(batch.column("headers"))
    topics = batch.column("topic").dictionary_encode()
    numbers = np.from_dlpack(batch.column("partition"))
    changes = np.diff(numbers) != 0
    if len(topics.dictionary) > 1:
        changes |= np.diff(np.from_dlpack(topics.indices)) != 0
    names = [name for name in RECORD_COLUMNS if name in batch.schema.names]
    records = pa.RecordBatch.from_arrays([_as_read(name, batch.column(name)) for name in names], names=names)
    borders = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    seen: set[TopicPartition] = set()
    pieces = []
    for begin, end in itertools.pairwise(borders):
        partition = TopicPartition(batch.column("topic")[begin].as_py(), int(numbers[begin]))
        if partition in seen:
            raise ConnectException(
                f"the transform returns rows of {partition} after those of another partition (offset "
                f"{records.column('offset')[begin]}): rows must stay in their order"
            )
        seen.add(partition)
        pieces.append(SinkRecords(partition, records.slice(begin, end - begin)))
    yield from pieces


def _check_headers(headers: pa.ListArray) -> None:
    entries = headers.flatten()
    if entries.null_count or entries.field("key").null_count:
        raise ConnectException(
            "the transform returns a record with a header that is null or has no key: remove that header"
        )


def _as_read(name: str, column: pa.Array) -> pa.Array:
    kind = RECORD_COLUMNS[name]
    if kind == pa.binary() and not is_bytes(column.type):
        return column  # a typed key or value keeps its type
    return column if column.type == kind else pc.cast(column, kind, safe=False)


# -- the end of the input ----------------------------------------------------------------------------------


def _end_of(stream: BinaryIO) -> Callable[[], bool]:
    # If an operator fails, Spark closes the connection. An Arrow stream that is cut between two batches looks
    # complete (3,304 records were once skipped), and pyspark notices only after the commit.
    def has_ended() -> bool:
        found: bytes = stream.peek(len(_CLEAN_END))[: len(_CLEAN_END)]  # type: ignore[attr-defined] # a BufferedReader
        return bool(found) and _CLEAN_END.startswith(found)

    return has_ended


def _input_of_worker() -> BinaryIO:
    # pyspark does not expose the stream of its worker's input.
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - no public API
    while frame is not None:
        if frame.f_code.co_name == "main" and "infile" in frame.f_locals:
            stream: BinaryIO = frame.f_locals["infile"]
            return stream
        frame = frame.f_back
    import pyspark  # noqa: PLC0415 - loaded by the worker

    raise ConnectException(
        f"transforms do not work with PySpark {pyspark.__version__}: cannot find the input stream of its "
        f"workers"
    )
