"""Read one archived file to its end, in memory that does not grow with the file."""

from __future__ import annotations

import io
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sinksdk import ConnectException
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.archive.layout import FileName
from sinksdk.connectors.s3_archiver.formats.columns import Longs
from sinksdk.connectors.s3_archiver.s3 import crc
from sinksdk.connectors.s3_archiver.s3.client import S3, Location, ObjectInfo
from sinksdk.connectors.s3_archiver.verify.reading import RECORDS, AvroFile, offsets_of
from sinksdk.values.avro_walk import Fit, walk_block
from sinksdk.values.json_text import bad_json

_GZIP: Final = 16 + zlib.MAX_WBITS
_AT_A_TIME: Final = 1024 * 1024  # bytes read at a time
# Largest number of bytes to which a piece of a gzip stream is decompressed at a time.
_INFLATED: Final = 4 * 1024 * 1024
_ROWS: Final = 8192  # rows of one batch of a Parquet file
# Bytes up to which a Parquet file is read in memory; a larger one goes to a temporary file.
_KEPT_IN_MEMORY: Final = 16 * 1024 * 1024
_PLACES: Final = ["topic", "partition", "offset"]


class Unreadable(Exception):
    """A file is damaged, or does not match its name."""


class Configured(NamedTuple):
    """The present configuration, for files that do not state the one at their commit."""

    # A transform has multiplied records, so that consecutive ones may share an offset.
    may_repeat: bool = False
    # The bytes after each value in a file of bytes; may be empty.
    separator: bytes = b"\n"


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    key: str
    size: int
    header: FileHeader
    content: str
    records: int | None  # None: the values in a file of bytes cannot be counted
    first: int
    last: int
    # Where runs of the file's records begin and end; None: a file of values states no offsets.
    firsts: Longs | None = None
    lasts: Longs | None = None
    name: FileName | None = None  # None: the file has no companion files of keys or headers
    # Largest number of values in a file of bytes, whose values may hold the separator.
    at_most: int | None = None

    @property
    def view(self) -> str:
        return self.name.view if self.name else ""

    @property
    def has_offsets(self) -> bool:
        return self.name is None


class _Content(NamedTuple):
    words: str
    # None: the format has no place for a header, which is then in the object's metadata.
    header: FileHeader | None = None
    records: int | None = None
    at_most: int | None = None
    runs: tuple[Longs, Longs] | None = None


def inspect(s3: S3, location: Location, name: FileName, configured: Configured) -> ArchivedFile:
    """Read a file completely. Raises Unreadable if it is damaged or does not match its name."""
    info = s3.head(location)
    if info is None:
        raise Unreadable(f"{location} was removed while it was being read")
    said = _header_of(info)
    if said is not None:
        configured = Configured(
            configured.may_repeat if said.may_repeat is None else said.may_repeat,
            configured.separator if said.separator is None else said.separator.encode(),
        )
    with s3.read(location) as content, kept_parquet() as kept:
        counted = _Counted(content)
        stream = io.BufferedReader(counted, _AT_A_TIME)
        try:
            found = _read(stream, name, kept, configured)
        except ConnectException:
            raise
        except Exception as error:
            raise Unreadable(f"{location} cannot be read: {str(error) or type(error).__name__}") from error
        while stream.read(_AT_A_TIME):
            pass
    _check_whole(info, location, counted)
    header = found.header or said
    if header is None:
        raise Unreadable(
            f"{location} was not written by this archiver: its metadata lack the archiver's entries"
        )
    firsts, lasts = found.runs or (None, None)
    begins = "" if firsts is None else f", and its records begin at offset {firsts[0] if len(firsts) else -1}"
    is_as_named = firsts is None or (len(firsts) and firsts[0] == name.start)
    if (header.partition, header.start) != (name.partition, name.start) or not is_as_named:
        raise Unreadable(
            f"{location} does not match its name: its header states {header.partition} from offset "
            f"{header.start}{begins}"
        )
    last = header.start if lasts is None else int(lasts[-1])
    return ArchivedFile(
        *(location.key, counted.size, header, found.words, found.records, header.start, last, firsts, lasts),
        name=name if firsts is None else None,
        at_most=found.at_most,
    )


def _header_of(info: ObjectInfo) -> FileHeader | None:
    try:
        return FileHeader.of_object(info.metadata)
    except ValueError:
        return None


def _read(stream: BinaryIO, name: FileName, kept: IO[bytes], configured: Configured) -> _Content:
    if name.extension == ".avro":
        return _read_avro(stream, name, configured)
    if name.extension.endswith(".parquet"):
        return _read_parquet(stream, name, kept, configured)
    pieces = _inflated(stream) if name.extension.endswith(".gz") else _pieces(stream)
    if name.extension.startswith(".json"):
        return _Content("values in JSON lines", records=_json_lines(pieces))
    count = _occurrences(pieces, configured.separator)
    return _Content("values as bytes", at_most=count if configured.separator else None)


def _read_avro(stream: BinaryIO, name: FileName, configured: Configured) -> _Content:
    file = AvroFile(stream)
    header = FileHeader.of(file.metadata)
    # The file's own schema says what the file holds; the configuration may have changed since.
    if file.holds_records:
        order = _Order(may_repeat=_repeats(header, configured))
        for block in file.blocks():
            order.follow(offsets_of(block, name.partition))
        return _Content("whole records in Avro", header, order.records, runs=order.runs)
    records = 0
    for block in file.blocks():
        ends, fit = walk_block(block.data, block.rows, file.schema)
        if fit is not Fit.FITS:
            raise ValueError(f"row {records + len(ends)} does not fit the file's schema: {_WHY[fit]}")
        records += block.rows
    return _Content("values in Avro", header, records)


_WHY: Final = {fit: fit.name.lower().replace("_", " ") for fit in Fit} | {
    Fit.LONGER: "its block has bytes after the last row",
    Fit.ODD: "it is not canonical Avro, and readers disagree about it",
}


def _read_parquet(stream: BinaryIO, name: FileName, kept: IO[bytes], configured: Configured) -> _Content:
    file = open_parquet(stream, kept)
    said = {key.decode(): text.decode() for key, text in (file.metadata.metadata or {}).items()}
    try:
        header = FileHeader.of(said)
    except ValueError:
        header = None
    if header is None or not {*_PLACES, "timestamp_type"} <= {*file.schema_arrow.names}:
        records = sum(batch.num_rows for batch in file.iter_batches(_ROWS))
        return _Content("values in Parquet", header, records)
    missing = [name for name in RECORDS.names if name not in file.schema_arrow.names]
    if missing:
        raise ValueError(f"it holds whole records, but has no column '{missing[0]}'")
    order = _Order(may_repeat=_repeats(header, configured))
    for batch in file.iter_batches(_ROWS):
        _check_partition(batch, name)
        order.follow(batch.column("offset").to_numpy())
    return _Content("whole records in Parquet", header, order.records, runs=order.runs)


def _repeats(header: FileHeader, configured: Configured) -> bool:
    return configured.may_repeat if header.may_repeat is None else header.may_repeat


def _check_partition(batch: pa.RecordBatch, name: FileName) -> None:
    rows = batch.select(_PLACES)
    topics = rows.column("topic")
    if pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_decode()
    are_ours = np.asarray(topics.to_numpy(zero_copy_only=False) == name.partition.topic)
    are_ours &= rows.column("partition").to_numpy() == name.partition.partition
    if not are_ours.all():
        row = rows.slice(int(np.flatnonzero(~are_ours)[0]), 1).to_pylist()[0]
        raise ValueError(f"it holds a record of {row['topic']}-{row['partition']} (offset {row['offset']})")


def kept_parquet() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(_KEPT_IN_MEMORY)


def open_parquet(stream: BinaryIO, kept: IO[bytes]) -> pq.ParquetFile:
    # A Parquet file is read from its end, so the whole stream is needed.
    shutil.copyfileobj(stream, kept, _AT_A_TIME)
    kept.seek(0)
    return pq.ParquetFile(kept)


# -- lines and bytes ---------------------------------------------------------------------------------------


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    while data := stream.read(_AT_A_TIME):
        yield data


def _inflated(stream: BinaryIO) -> Iterator[bytes]:
    inflate = zlib.decompressobj(_GZIP)
    for data in _pieces(stream):
        yield inflate.decompress(data, _INFLATED)
        while inflate.unconsumed_tail:  # a few compressed bytes may become gigabytes
            yield inflate.decompress(inflate.unconsumed_tail, _INFLATED)
    if not inflate.eof:
        raise ValueError("its gzip data are truncated")


def _json_lines(pieces: Iterable[bytes]) -> int:
    count, rest = 0, b""
    for piece in pieces:
        data = rest + piece if rest else piece
        end = data.rfind(b"\n") + 1
        count += _checked_lines(data[:end], count) if end else 0
        rest = data[end:]
    if rest:
        raise ValueError("its last line does not end with a newline")
    return count


def _checked_lines(data: bytes, before: int) -> int:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    borders = np.concatenate([np.zeros(1, np.int64), ends])
    lines = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(borders), pa.py_buffer(data)]
    )
    for row, why in bad_json(lines).items():
        raise ValueError(f"line {before + row + 1} is not JSON: {why}")
    return len(ends)


def _occurrences(pieces: Iterable[bytes], separator: bytes) -> int:
    count, rest = 0, b""
    for piece in pieces:
        if separator:
            *found, last = (rest + piece).split(separator)
            count += len(found)
            rest = last[max(len(last) - len(separator) + 1, 0) :]
    return count


# -- order and checksum ------------------------------------------------------------------------------------


class _Order:
    def __init__(self, *, may_repeat: bool) -> None:
        self._may_repeat = may_repeat
        self._firsts: list[Longs] = []
        self._lasts: list[Longs] = []
        self._last: int | None = None
        self.records = 0

    @property
    def runs(self) -> tuple[Longs, Longs]:
        nothing = np.empty(0, np.int64)
        last = [] if self._last is None else [np.array([self._last])]
        return np.concatenate([nothing, *self._firsts]), np.concatenate([nothing, *self._lasts, *last])

    def follow(self, offsets: Longs) -> None:
        if not len(offsets):
            return
        before = np.concatenate([[offsets[0] - 2 if self._last is None else self._last], offsets[:-1]])
        steps = offsets - before
        wrong = np.flatnonzero(steps < (0 if self._may_repeat else 1))
        if len(wrong):
            row = int(wrong[0])
            order = "twice" if steps[row] == 0 else f"after offset {before[row]}"
            raise ValueError(f"it holds offset {offsets[row]} {order}")
        begins = np.flatnonzero(steps > 1)
        self._firsts.append(offsets[begins].copy())
        self._lasts.append(before[begins if self._last is not None else begins[1:]].copy())
        self._last = int(offsets[-1])
        self.records += len(offsets)


def _check_whole(info: ObjectInfo, location: Location, counted: _Counted) -> None:
    if info.size != counted.size:
        raise Unreadable(f"{location} has {info.size} bytes, of which {counted.size} were received")
    # S3 checked this checksum when the file was uploaded.
    if info.crc32 is not None and info.crc32 != crc.encode(counted.crc32):
        raise Unreadable(f"{location} is damaged: CRC32 {crc.encode(counted.crc32)}, S3 has {info.crc32}")


class _Counted(io.RawIOBase):
    """Counts the bytes of a stream, and computes their CRC32, as a reader takes them."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream: Any = stream  # the stream has readinto, like each buffered stream
        self.size = 0
        self.crc32 = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self.size += count
        self.crc32 = zlib.crc32(memoryview(buffer)[:count], self.crc32)
        return count
