"""Protocols of formats: encode a batch once, then build files from slices of the result.

A batch of one topic partition is encoded once, whatever files its rows go to; each file then takes its slice
of what came out. So a format has two sides: :meth:`Format.encode`, over rows, and :class:`FileContent`, which
makes a file of encoded rows, piece by piece.
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
    """Encoded rows, one behind the other."""

    def __len__(self) -> int:
        """Number of rows."""

    def slice(self, start: int, stop: int) -> Self:
        """Rows ``start`` to ``stop`` (the one after the last), not copied."""


R = TypeVar("R", bound=Rows)

R_contra = TypeVar("R_contra", bound=Rows, contravariant=True)


class Encoded(NamedTuple, Generic[R]):
    """A batch, encoded.

    Args:
        rows: the good rows, in their order.
        bad: rows that cannot be encoded, by their number in the batch; they are not in ``rows``. Each error
            names topic, partition and offset, and says what to do; None for a record that is to be left out
            without a word.
    """

    rows: R
    bad: Mapping[int, DataException | None]


@dataclass(frozen=True, slots=True)
class Kinds:
    """What must not be mixed in one file, as a schema must not: each kind has files of its own.

    Args:
        kinds: those of the batch, in the order of their first rows; each is equal to itself in other batches,
            can be a dictionary's key, and is what :meth:`Format.begin` is given.
        codes: for each row its place in ``kinds``; -1 where the row is bad.
        bad: as in :class:`Encoded`.
    """

    kinds: list[object]
    codes: Codes
    bad: Mapping[int, DataException | None] = field(default_factory=dict)


class FileContent(Protocol[R_contra]):
    """Makes the bytes of one file.

    The methods that return pieces are generators: consume each to its end before the next call.
    """

    def header(self) -> Iterator[BytesLike]:
        """What the file begins with. Called once, before any row."""

    def append(self, rows: R_contra) -> Iterator[BytesLike]:
        """Add rows; the pieces are what is ready by now."""

    def finish(self) -> Iterator[BytesLike]:
        """What the file ends with. Nothing may be appended after it."""

    @property
    def buffered(self) -> int:
        """Bytes held in memory that were not handed out yet."""


class Format(Protocol[R]):
    """Encodes batches, and begins files."""

    @property
    def extension(self) -> str:
        """What a file's name ends with, the dot included: ``.avro``, ``.json.gz``; as Confluent's."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns that :meth:`encode` looks at; None: all."""

    def learn(self, batch: pa.RecordBatch) -> None:
        """Ask others for what a batch needs, before anything of it is taken: nothing else asks.

        Raises:
            RetriableException: they do not answer now; nothing has changed.
            ConfigException: they never will.
        """

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds | None:
        """What of a topic partition's batch must not be mixed in one file; None: all rows are alike."""

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[R]:
        """Encode a whole batch (at least one row) of one topic partition, of any kinds, in one pass.

        Args:
            batch: columns as in :data:`sinksdk.records.RECORD_COLUMNS`.
        """

    def begin(self, header: FileHeader, key: str, kind: object) -> FileContent[R]:
        """Begin a file.

        Args:
            header: what it says of itself, if it has a place for that; it is in the object's metadata too.
            key: the object's.
            kind: of all its rows; None if :meth:`kinds` returns None.
        """


KeepSchema = Callable[[str, bytes], None]
"""Keeps a schema, by its id or GUID and as JSON, beside the data. Raises RetriableException: nothing was
kept."""
