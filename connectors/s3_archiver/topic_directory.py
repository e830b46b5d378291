"""The records of a topic directory (``topic=T/partition=P/*.parquet``), to compare an archive with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sinksdk import ConfigException, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.compare import Record
from sinksdk.records import RECORD_COLUMNS


class TopicDirectory:
    """A topic directory. Nothing in it is ever removed.

    Args:
        root: its folder.

    Raises:
        ConfigException: there is no such directory.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            message = f"'{root}' is no directory"
            raise ConfigException(message)
        self._root = root

    def __str__(self) -> str:
        return f"the topic directory {self._root}"

    def records(self, partition: TopicPartition, end: int) -> Iterator[Record]:
        """See :meth:`sinksdk.connectors.s3_archiver.compare.Original.records`."""
        folder = self._root / f"topic={partition.topic}" / f"partition={partition.partition}"
        for path in sorted(folder.glob("*.parquet"), key=_first_offset):
            yield from (record for record in _read(path, partition) if record.offset < end)

    def why_gone(self, partition: TopicPartition, offset: int) -> str:  # noqa: ARG002 - as for other originals
        """Nothing explains a record that is not there."""
        return ""


def _read(path: Path, partition: TopicPartition) -> Iterator[Record]:
    with pq.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in RECORD_COLUMNS]
        for batch in file.iter_batches(columns=columns):
            for record in SinkRecords(partition, _as_records(batch)):
                headers = tuple((header.key, header.value) for header in record.headers)
                yield Record(
                    record.offset, record.timestamp, record.timestamp_type, record.key, record.value, headers
                )


def _first_offset(path: Path) -> int:
    with pq.ParquetFile(path) as file:
        index = file.schema_arrow.names.index("offset")
        groups = [file.metadata.row_group(i).column(index) for i in range(file.num_row_groups)]
        offsets = [group.statistics.min for group in groups if group.statistics]
        return min(offsets, default=-1)


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns in the types that tasks see."""
    arrays = [batch.column(name).cast(RECORD_COLUMNS[name], safe=False) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
