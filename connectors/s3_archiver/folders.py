"""Which folder of its topic's archive a record's file lies in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk import DataException, TopicPartition

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig


@dataclass(frozen=True, slots=True)
class Split:
    """The folders of a batch's rows.

    Args:
        paths: those of the batch, in the order of their first rows, as they stand in keys.
        codes: for each row its place in ``paths``; -1 where the row is bad.
        timestamps: milliseconds since the epoch, as the extractor finds them; None where there is none.
        bad: rows that have no folder, by their number in the batch. Each error names topic, partition and
            offset, and says what to do.
    """

    paths: list[str]
    codes: npt.NDArray[np.int32]
    timestamps: npt.NDArray[np.int64] | None = None
    bad: Mapping[int, DataException] = field(default_factory=dict)


class Folders(Protocol):
    """Finds the folders of records."""

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """The folders of a batch of one topic partition.

        Args:
            batch: columns as in :data:`sinksdk.records.RECORD_COLUMNS`.
            now: seconds since the epoch: one reading of the wall clock for all.
        """


class PartitionFolders:
    """One folder for each topic partition: Confluent's DefaultPartitioner."""

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:  # noqa: ARG002 - of the protocol
        """See :class:`Folders`."""
        return Split([f"partition={partition.partition}"], np.zeros(batch.num_rows, np.int32))


def folders_of(config: S3ArchiverConfig) -> Folders:  # noqa: ARG001 - there is one kind of folders
    """What a configuration asks for."""
    return PartitionFolders()
