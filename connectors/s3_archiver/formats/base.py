"""Protocols that formats implement: a batch is encoded once, and files are built from slices of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import pyarrow as pa

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike
from sinksdk.connectors.s3_archiver.formats.columns import Codes


class Rows(Protocol):
    def __len__(self) -> int: ...

    def slice(self, start: int, stop: int) -> Self:
        """Return a view of rows ``start`` to ``stop`` (exclusive)."""


R = TypeVar("R", bound=Rows)

R_contra = TypeVar("R_contra", bound=Rows, contravariant=True)


class Encoded(NamedTuple, Generic[R]):
    rows: R
    # Errors by row number in the batch; these rows are not in ``rows``. None: the record is left out without
    # a report.
    bad: Mapping[int, DataException | None]


@dataclass(frozen=True, slots=True)
class Kinds:
    """Kinds of rows, such as schemas. Rows of different kinds never share a file."""

    # Kinds in the order of their first rows; hashable, and equal across batches.
    kinds: list[object]
    # The index in ``kinds`` for each row; -1 for a bad row.
    codes: Codes
    bad: Mapping[int, DataException | None] = field(default_factory=dict)


class FileContent(Protocol[R_contra]):
    """The content of one file. Consume each generator to its end before the next call."""

    def header(self) -> Iterator[BytesLike]:
        """Yield the start of the file. Called once, before any row."""

    def append(self, rows: R_contra) -> Iterator[BytesLike]: ...

    def finish(self) -> Iterator[BytesLike]:
        """Yield the end of the file. No rows may be appended afterwards."""

    @property
    def buffered(self) -> int:
        """Return the bytes in memory that are not yielded yet."""


class Format(Protocol[R]):
    @property
    def extension(self) -> str:
        """Return the end of a file's name, as Confluent's sink writes it: ``.avro``, ``.json.gz``."""

    @property
    def columns(self) -> Sequence[str] | None:
        """Return the columns that :meth:`encode` reads; None: all."""

    def learn(self, batch: pa.RecordBatch) -> None:
        """Fetch what a batch needs from other systems, before the task takes any of its records.

        Raises:
            RetriableException: a system is unavailable; nothing has changed.
            ConfigException: a system refuses the request.
        """

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds | None:
        """Return the kinds of a batch's rows; None if all rows are alike."""

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[R]:
        """Encode a batch of at least one row, of any kinds, in one pass."""

    def begin(self, header: FileHeader, key: str, kind: object) -> FileContent[R]:
        """Begin a file whose rows are all of one kind; None if :meth:`kinds` returns None."""


class OneKind:
    """The base of formats that fetch nothing and whose rows are all alike."""

    def learn(self, batch: pa.RecordBatch) -> None: ...

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> None: ...


# Stores a schema's JSON under its id or GUID; raises RetriableException if that fails.
KeepSchema = Callable[[str, bytes], None]
