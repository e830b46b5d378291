"""Implements PySpark's data source interface, for writes only."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

# Every session that lists data sources imports this module: other imports are in the functions.
if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sinksdk.frames.protocol import Share, Writing
    from sinksdk.frames.writer import FrameWriter

_QUERY = "sql.streaming.queryId"
_RUN = "spark.jobGroup.id"  # Structured Streaming sets it to the id of the run
_BATCH = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """The result of a task. Without a share there is nothing to commit."""

    writing: Writing
    share: Share | None


class SinkDataSource(DataSource):
    """``format("sinksdk")``: writes DataFrames with any sink connector."""

    @classmethod
    def name(cls) -> str:
        return "sinksdk"

    def schema(self) -> StructType:
        # Spark calls this method for reads.
        from sinksdk.errors import ConfigException

        raise ConfigException('format("sinksdk") only writes; connectors read topics with sinksdk.run()')

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(self._prepared(schema, is_overwriting=overwrite), uuid.uuid4().hex)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        return StreamWriter(self._prepared(schema, is_overwriting=overwrite))

    def _prepared(self, schema: StructType, *, is_overwriting: bool) -> FrameWriter:
        from pyspark.sql.pandas.types import to_arrow_schema

        from sinksdk.errors import ConfigException
        from sinksdk.frames.prepare import prepare_writer

        if is_overwriting:
            raise ConfigException(
                "a sink only appends: use mode('append'), or outputMode('append') with a stream"
            )
        return prepare_writer(dict(self.options), to_arrow_schema(schema, timezone="UTC"))


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, frame: FrameWriter, write_id: str) -> None:
        self._frame = frame
        self._id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _written(self._frame, self._writing(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._frame.commit(self._writing(), _shares(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._frame.abort(self._writing())

    def _writing(self) -> Writing:
        from sinksdk.frames.protocol import Writing

        return Writing(self._id, self._id)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, frame: FrameWriter) -> None:
        self._frame = frame

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from sinksdk.frames.protocol import Writing

        task = _task()
        query, run, batch = (task.getLocalProperty(key) for key in (_QUERY, _RUN, _BATCH))
        if query is None or run is None or batch is None:
            raise RuntimeError(
                f"Spark does not identify the micro-batch: query {query}, run {run}, batch {batch}"
            )
        return _written(self._frame, Writing(query, run, int(batch)), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # PySpark passes no query or run to this method, so the tasks' messages name them.
        writing = _writing_of(messages)
        if writing is not None:
            self._frame.commit(writing, _shares(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # If no task has sent a message, the next micro-batch discards the tokens.
        writing = _writing_of(messages)
        if writing is not None:
            self._frame.abort(writing)


def _written(frame: FrameWriter, writing: Writing, batches: Iterator[pa.RecordBatch]) -> Written:
    return Written(writing, frame.write(writing, _task().partitionId(), batches))


def _task() -> TaskContext:
    task: TaskContext | None = TaskContext.get()
    if task is None:
        raise RuntimeError("write() is called outside of a Spark task")
    return task


def _shares(messages: Sequence[WriterCommitMessage | None]) -> list[Share]:
    return [m.share for m in messages if isinstance(m, Written) and m.share is not None]


def _writing_of(messages: Sequence[WriterCommitMessage | None]) -> Writing | None:
    return next((message.writing for message in messages if isinstance(message, Written)), None)
