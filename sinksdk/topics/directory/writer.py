"""Writing topic directories: for producers without Spark, tests and demonstrations."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sinksdk.records import SinkRecords, TopicPartition
from sinksdk.topics.directory.layout import local_root, partition_folder
from sinksdk.topics.directory.log import Entry, Extent, TransactionLog

Records: TypeAlias = "pa.Table | pa.RecordBatch | SinkRecords"


def write_records(path: str | os.PathLike[str], partition: TopicPartition, records: Records) -> Path:
    """Write records as one new file, which appears whole or not at all.

    Args:
        path: the topic directory; it is created where it is not there.
        records: rows with at least the columns ``offset``, ``key`` and ``value``; offsets ascend and
            are above all earlier ones of the partition (which is not checked here).

    Returns:
        The file's path, named after its first and last offset. Writing the same offsets again replaces
        it, so that a writer that crashed may repeat its last call.

    Raises:
        ValueError: no rows, no column ``offset``, or offsets that are null, negative or do not ascend.
    """
    table = _as_table(records)
    first, last = _extent(partition, table)
    folder = local_root(path) / partition_folder(partition)
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"{first:020d}-{last:020d}.parquet"
    _replace(final, lambda temporary: pq.write_table(table, temporary))
    return final


def write_transaction(
    path: str | os.PathLike[str], records: Mapping[TopicPartition, Records]
) -> Mapping[TopicPartition, Path]:
    """Write records of several partitions so that readers see all of them at once or none.

    From the first transaction on, only files named in a transaction count: a topic directory is
    written either with this function or with :func:`write_records`, never with both.

    Args:
        records: what to write, as for :func:`write_records`.

    Returns:
        The new file of each partition.

    Raises:
        ValueError: as :func:`write_records`.
        ConnectException: the directory holds files written without transactions, or a broken entry.
    """
    root = local_root(path)
    log = TransactionLog(root)
    log.create()  # before the files are there, which would count at once without it
    files = {partition: write_records(root, partition, rows) for partition, rows in records.items()}
    entry = Entry(
        files=tuple(file.relative_to(root).as_posix() for file in files.values()),
        extents=tuple(_named_extent(partition, file) for partition, file in files.items()),
    )
    log.refresh()
    while not log.append(entry):
        log.refresh()
    return files


def _named_extent(partition: TopicPartition, file: Path) -> Extent:
    first, last = map(int, file.stem.split("-"))
    return Extent(topic=partition.topic, partition=partition.partition, start=first, end=last + 1)


def _as_table(records: Records) -> pa.Table:
    if isinstance(records, SinkRecords):
        records = records.arrow
    return pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records


def _extent(partition: TopicPartition, table: pa.Table) -> tuple[int, int]:
    if not table.num_rows or "offset" not in table.column_names or table.column("offset").null_count:
        message = f"{partition}: records to write need at least one row and an offset in each"
        raise ValueError(message)
    offsets = table.column("offset").to_numpy()
    if offsets[0] < 0 or (np.diff(offsets) <= 0).any():
        message = f"{partition}: offsets must ascend from 0 or above, each once"
        raise ValueError(message)
    return int(offsets[0]), int(offsets[-1])


def _replace(final: Path, write: Callable[[Path], object]) -> None:
    temporary = final.with_name(f"_{uuid.uuid4().hex}.tmp")
    try:
        write(temporary)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
