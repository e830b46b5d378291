"""Protocols of formats: encode a batch once, then build files from slices of the result.

A batch of one topic partition is encoded once, whatever files its rows go to: :meth:`Format.encode`. Each
file takes its slices of the encoded rows and yields its content in pieces: :class:`FileContent`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike

Codes = npt.NDArray[np.int32]


class Rows(Protocol):
    def __len__(self) -> int:
        """Number of rows."""

    def slice(self, start: int, stop: int) -> Self:
        """Return rows ``start`` to ``stop`` (exclusive), not copied."""


R = TypeVar("R", bound=Rows)

R_contra = TypeVar("R_contra", bound=Rows, contravariant=True)


class Encoded(NamedTuple, Generic[R]):
    """An encoded batch.

    Args:
        rows: the good rows, in their order.
        bad: rows that cannot be encoded, by their number in the batch; they are not in ``rows``. Each error
            names topic, partition and offset, and says what to do; None for a record that is left out without
            a report.
    """

    rows: R
    bad: Mapping[int, DataException | None]


@dataclass(frozen=True, slots=True)
class Kinds:
    """Kinds of rows, as of schemas, that must not share a file: each kind has files of its own.

    Args:
        kinds: those of the batch, in the order of their first rows; hashable, equal across batches; passed to
            :meth:`Format.begin`.
        codes: for each row its place in ``kinds``; -1 where the row is bad.
        bad: as in :class:`Encoded`.
    """

    kinds: list[object]
    codes: Codes
    bad: Mapping[int, DataException | None] = field(default_factory=dict)


class FileContent(Protocol[R_contra]):
    """The bytes of one file.

    The methods that return pieces are generators: consume each to its end before the next call.
    """

    def header(self) -> Iterator[BytesLike]:
        """Yield what the file begins with. Called once, before any row."""

    def append(self, rows: R_contra) -> Iterator[BytesLike]:
        """Add rows, and yield the pieces that are ready."""

    def finish(self) -> Iterator[BytesLike]:
        """Yield what the file ends with. Nothing may be appended after it."""

    @property
    def buffered(self) -> int:
        """Bytes in memory that were not yielded yet."""


class Format(Protocol[R]):
    """Encodes batches, and begins files."""

    @property
    def extension(self) -> str:
        """The end of a file's name with the dot: ``.avro``, ``.json.gz``; as Confluent's."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns that :meth:`encode` reads; None: all."""

    def learn(self, batch: pa.RecordBatch) -> None:
        """Fetch what a batch needs from other systems, before any of it is taken; no other method does.

        Raises:
            RetriableException: they are unavailable; nothing has changed.
            ConfigException: they refuse.
        """

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds | None:
        """Return the kinds of a batch's rows; None if all rows are alike."""

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[R]:
        """Encode a whole batch (at least one row) of one topic partition, of any kinds, in one pass.

        Args:
            batch: columns as in :data:`sinksdk.records.RECORD_COLUMNS`.
        """

    def begin(self, header: FileHeader, key: str, kind: object) -> FileContent[R]:
        """Begin a file.

        Args:
            header: metadata for formats that have a place for it; it is in the object's metadata too.
            key: the object's.
            kind: of all its rows; None if :meth:`kinds` returns None.
        """


class OneKind:
    """The part of formats that fetch nothing, and whose rows are all alike."""

    def learn(self, batch: pa.RecordBatch) -> None:
        """Fetch nothing."""

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """All rows may share a file."""


KeepSchema = Callable[[str, bytes], None]
"""Stores a schema as JSON, by its id or GUID. Raises RetriableException: it is not stored."""
