"""Split batches by folder: by Kafka partition, by time, by fields of the value, or by both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import ConfigException, DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.layout import folder_of
from sinksdk.connectors.s3_archiver.formats.columns import Codes, Longs, long_column
from sinksdk.connectors.s3_archiver.partitioners.avro_fields import AvroFields
from sinksdk.connectors.s3_archiver.partitioners.checks import MOST_BYTES, folder_problems, longest_path
from sinksdk.connectors.s3_archiver.partitioners.fields import Field, FieldReader, JsonFields, TypedFields
from sinksdk.connectors.s3_archiver.partitioners.settings import Partitioner, PartitionerSettings
from sinksdk.connectors.s3_archiver.partitioners.times import (
    LAST,
    PathFormat,
    Spans,
    Zone,
    milliseconds,
)
from sinksdk.values.calendar import DAY, Moment


@dataclass(frozen=True, slots=True)
class Split:
    paths: list[str]
    codes: Codes  # the index in ``paths`` for each row; -1 for a bad row
    # Milliseconds after which each row's folder is named; None: folders do not depend on time.
    timestamps: Longs | None = None
    bad: dict[int, DataException] = field(default_factory=dict)


class Folders(Protocol):
    def learn(self, batch: pa.RecordBatch) -> None: ...

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """Return the folders of a batch; ``now``, in seconds, is read once for all of a ``put``."""
        ...


def folders_of(config: PartitionerSettings, schema_of: Callable[[int], Any] | None = None) -> Folders:
    kind = config.partitioner
    problems = list(folder_problems(config))
    if problems or kind is None:
        raise ConfigException(problems)
    if kind.is_default:
        return PartitionFolders()
    time = kind.has_time and TimeFolders(
        PathFormat(config.time_pattern(kind), config.locale),
        config.partition_duration_ms if kind.duration is None else kind.duration,
        Zone(config.timezone),
    )
    return ValueFolders(
        names=tuple(config.partition_field_name) if kind.has_fields else (),
        are_named=config.partition_field_format_path or not kind.has_time,
        time=time or None,
        extractor=config.extractor,
        timestamp_field=config.timestamp_field,
        reader=_reader_of(config, kind, schema_of) if config.reads_fields else None,
        delimiter=config.directory_delim,
        room=partial(longest_path, config),
    )


def _reader_of(
    config: PartitionerSettings, kind: Partitioner, schema_of: Callable[[int], Any] | None
) -> FieldReader:
    names = [*(config.partition_field_name if kind.has_fields else ())]
    by_field = kind.has_time and config.extractor == "RecordField"
    paths = [tuple(name.split(".")) for name in (*names, *((config.timestamp_field,) if by_field else ()))]
    spec = config.read_spec()
    moment = {paths[-1]} - set(paths[:-1]) if by_field else set()
    of_json = JsonFields(paths, fractions=moment)
    if spec.kind != "avro":
        of_bytes = JsonFields(paths, schemas_enable=spec.schemas_enable, fractions=moment)
        return TypedFields(paths, of_json, of_bytes)
    schema_of = schema_of or config.schema_of()
    if schema_of is None:
        raise ConfigException(
            "fields of Avro values need a schema registry: set 'value.converter.schema.registry.url'"
        )
    return TypedFields(paths, of_json, AvroFields(paths, schema_of))


# -- splitting -----------------------------------------------------------------------------------


class PartitionFolders:
    def learn(self, batch: pa.RecordBatch) -> None: ...

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:  # noqa: ARG002 - a signature of Folders
        return Split([folder_of(partition)], np.zeros(batch.num_rows, np.int32))


class _Level(NamedTuple):
    """The texts of one level of all paths, and the index of the text for each row."""

    texts: Sequence[str]
    codes: Codes


class ValueFolders:
    def __init__(
        self,
        *,
        names: Sequence[str],
        are_named: bool,
        time: TimeFolders | None,
        extractor: str,
        timestamp_field: str,
        reader: FieldReader | None,
        delimiter: str,
        room: Callable[[TopicPartition, int], int],
    ) -> None:
        self._prefixes = [(name, f"{name}=" if are_named else "") for name in names]
        self._time = time
        self._extractor = extractor
        self._timestamp_field = timestamp_field
        # The reader of the fields for folders, then of the field with the timestamp.
        self._reader = reader
        self._delimiter = delimiter
        # Bytes that a path may have, given a topic partition and an offset.
        self._room = room

    def learn(self, batch: pa.RecordBatch) -> None:
        if self._reader is not None:
            self._reader.learn(batch.column("value"))

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        rows = batch.num_rows
        if not rows:
            return Split([], np.empty(0, np.int32), np.empty(0, np.int64) if self._time else None)
        bad: dict[int, str] = {}
        fields = [] if self._reader is None else self._reader.read(batch.column("value"))
        levels = [
            _named(prefix, name, found, rows, self._delimiter, bad)
            for (name, prefix), found in zip(self._prefixes, fields, strict=False)
        ]
        timestamps = None
        if self._time is not None:
            timestamps = self._timestamps(batch, fields, now, bad)
            levels.append(self._time.level(timestamps, bad))
        room = self._room(partition, batch.column("offset")[rows - 1].as_py())
        paths, codes = _joined(levels, self._delimiter, room, bad)
        return Split(paths, codes, timestamps, _exceptions(partition, batch, bad))

    def _timestamps(
        self, batch: pa.RecordBatch, fields: Sequence[Field], now: float, bad: dict[int, str]
    ) -> Longs:
        if self._extractor == "Wallclock":
            return np.full(batch.num_rows, int(now * 1_000), np.int64)
        if self._extractor == "Record":
            timestamps = _of_records(batch)
            for row in np.flatnonzero(timestamps == _NO_TIMESTAMP).tolist():
                bad.setdefault(
                    row,
                    "it has no timestamp, which 'timestamp.extractor' = Record needs for the folder: use "
                    "RecordField or Wallclock, or have the producer set it",
                )
            return timestamps
        found = fields[-1]
        timestamps = np.zeros(batch.num_rows, np.int64)
        for row, reason in found.bad.items():
            bad.setdefault(row, f"its value {reason} ('timestamp.field')")
        for rows, column in found.pieces:
            timestamps[rows], wrong = milliseconds(column)
            for place, what in wrong.items():
                bad.setdefault(
                    int(rows[place]),
                    f"its value has {what} as '{self._timestamp_field}' ('timestamp.field'), which must "
                    f"be milliseconds since 1970, a timestamp, or text like 2024-02-29T12:34:56Z",
                )
        return timestamps


_NO_TIMESTAMP: Final = -1


def _of_records(batch: pa.RecordBatch) -> Longs:
    index = batch.schema.get_field_index("timestamp")
    if index < 0:
        return np.full(batch.num_rows, _NO_TIMESTAMP, np.int64)
    column = batch.column(index)
    if column.type.unit != "ms":
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    column = column.view(pa.int64())
    if column.null_count:
        column = pc.coalesce(column, long_column(np.full(len(column), _NO_TIMESTAMP)))
    return np.from_dlpack(column).view(np.int64)


def _exceptions(
    partition: TopicPartition, batch: pa.RecordBatch, bad: Mapping[int, str]
) -> dict[int, DataException]:
    if not bad:
        return {}
    offsets = batch.column("offset")
    return {
        row: DataException(
            f"topic {partition.topic}, partition {partition.partition}, offset {offsets[row].as_py()}: the "
            f"record has no folder: {bad[row]}; correct the producer of such records, or skip them with "
            f"'errors.tolerance' = all"
        )
        for row in sorted(bad)
    }


def _distinct(keys: Longs) -> tuple[Longs, Codes]:
    """Return the first row of each distinct key, and for each row the index of its key."""
    low, high = int(keys.min()), int(keys.max())
    if low == high:
        return np.zeros(1, np.int64), np.zeros(len(keys), np.int32)
    span = high - low + 1
    if span > 4 * len(keys) + 4_096:
        _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first)
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        return first[order], ranks[codes]
    keys = keys - low
    first = np.full(span, -1, np.int64)
    # the last assignment to a key stays, which is its first row
    first[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)
    used = np.flatnonzero(first >= 0)
    order = used[np.argsort(first[used])]
    ranks = np.empty(span, np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return first[order], ranks[keys]


def _joined(
    levels: Sequence[_Level], delimiter: str, room: int, bad: dict[int, str]
) -> tuple[list[str], Codes]:
    keys = levels[0].codes.astype(np.int64)
    for level in levels[1:]:
        keys = keys * len(level.texts) + level.codes
    good = None
    if bad:
        good = np.ones(len(keys), bool)
        good[list(bad)] = False
        keys = keys[good]
    codes = np.full(0 if good is None else len(good), -1, np.int32)
    if not len(keys):
        return [], codes
    first, found = _distinct(keys)
    rows = first if good is None else np.flatnonzero(good)[first]
    paths = [delimiter.join([level.texts[level.codes[row]] for level in levels]) for row in rows.tolist()]
    if good is None:
        codes = found
    else:
        codes[good] = found
    return _of_good_length(paths, codes, room, bad)


def _of_good_length(
    paths: list[str], codes: Codes, room: int, bad: dict[int, str]
) -> tuple[list[str], Codes]:
    sizes = [len(path.encode()) for path in paths]
    if max(sizes) <= room:
        return paths, codes
    ranks = np.full(len(paths) + 1, -1, np.int32)  # the last entry is for -1
    kept = [number for number, size in enumerate(sizes) if size <= room]
    ranks[kept] = np.arange(len(kept), dtype=np.int32)
    for number, size in enumerate(sizes):
        if size > room:
            for row in np.flatnonzero(codes == number).tolist():
                bad[row] = (
                    f"the folder's name has {size:,} bytes, and the file's key would exceed S3's "
                    f"{MOST_BYTES:,} bytes: use a field with shorter values"
                )
    return [paths[number] for number in kept], ranks[codes]


# -- fields --------------------------------------------------------------------------------------

_IMPOSSIBLE: Final = re.compile(r"[\x00-\x1f\x7f]")


def _named(  # noqa: PLR0917 - the parts of a level, and where its failures go
    prefix: str, name: str, found: Field, rows: int, delimiter: str, bad: dict[int, str]
) -> _Level:
    for row, reason in found.bad.items():
        bad.setdefault(row, f"its value {reason} ('partition.field.name')")
    codes = np.full(rows, -1, np.int32)
    texts: dict[str, int] = {}
    for places, column in found.pieces:
        values = _texts(column)
        if isinstance(values, str):
            for row in places.tolist():
                bad.setdefault(row, _bad_value(name, values))
            continue
        index, distinct = values
        ranks = np.empty(len(distinct), np.int32)
        for number, text in enumerate(distinct):
            why = _problem(text, delimiter)
            if why is None:
                ranks[number] = texts.setdefault(prefix + text, len(texts))
            else:
                ranks[number] = -1
                for row in places[index == number].tolist():
                    bad.setdefault(row, _bad_value(name, why))
        codes[places] = ranks[index]
    return _Level(list(texts), codes)


def _bad_value(name: str, what: str) -> str:
    return (
        f"its value has {what} as '{name}' ('partition.field.name'): folders are named after text, whole "
        f"numbers and booleans that can be the name of one folder"
    )


def _texts(column: pa.Array) -> tuple[Longs, list[str]] | str:
    """Return distinct texts and the index of each row; or a type that cannot name folders."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (is_text or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        return f"a value of type {kind}"
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64), ["null"]
    encoded = column.dictionary_encode(null_encoding="encode")
    index = np.from_dlpack(encoded.indices).astype(np.int64)
    values = encoded.dictionary.to_pylist()
    if pa.types.is_boolean(kind):
        return index, ["null" if each is None else str(each).lower() for each in values]
    return index, ["null" if each is None else str(each) for each in values]


def _problem(text: str, delimiter: str) -> str | None:
    """Return why a value cannot be a folder's name: a reason that continues "has"."""
    if not text:
        return "an empty text"
    if text in (".", ".."):
        return f"'{text}'"
    if "/" in text or delimiter in text:
        return f"a text with '{'/' if '/' in text else delimiter}', which would be several folders,"
    if _IMPOSSIBLE.search(text):
        return "a text with control characters"
    return None


# -- time ----------------------------------------------------------------------------------------

_MOST_REMEMBERED: Final = 10_000


class TimeFolders:
    def __init__(self, pattern: PathFormat, duration: int, zone: Zone) -> None:
        self._format = pattern
        self._duration = duration  # milliseconds
        self._zone = zone
        # Number of milliseconds, counted from midnight, within which the text of a bucket does not change.
        self._cell = max(pattern.unit, duration)
        self._texts: dict[tuple[int, bool], str] = {}

    def level(self, timestamps: Longs, bad: dict[int, str]) -> _Level:
        first, last = int(timestamps.min()), int(timestamps.max())
        if first < -LAST or last > LAST:
            beyond = (timestamps < -LAST) | (timestamps > LAST)
            for row in np.flatnonzero(beyond).tolist():
                bad.setdefault(
                    row,
                    f"its timestamp {timestamps[row]} is outside of the years -292275055 to 292278994, which "
                    f"can be formatted",
                )
            timestamps = np.where(beyond, 0, timestamps)
            first, last = int(timestamps.min()), int(timestamps.max())
        spans = self._zone.spans(timestamps, self._duration)
        local = timestamps + spans.offsets
        buckets = local // self._duration
        if first < DAY:  # Java rounds towards zero before 1970
            buckets += (local < 0) & (buckets * self._duration != local)
        keys, moved = self._keys(timestamps, local, buckets, spans)
        # Text is created only for distinct buckets, not for each record.
        rows, codes = _distinct(keys)
        texts: dict[str, int] = {}
        ranks = []
        for row in rows.tolist():
            is_moved = moved is not None and bool(moved[row])
            text = self._text(int(buckets[row] if is_moved else keys[row]), is_moved=is_moved)
            ranks.append(texts.setdefault(text, len(texts)))
        if len(texts) < len(ranks):
            codes = np.array(ranks, np.int32)[codes]
        return _Level(list(texts), codes)

    def _keys(
        self, timestamps: Longs, local: Longs, buckets: Longs, spans: Spans
    ) -> tuple[Longs, npt.NDArray[np.bool_] | None]:
        """Return a key per folder, and the rows whose bucket may be another local time."""
        keys = buckets if self._cell == self._duration else buckets * self._duration // self._cell
        if self._format.has_offset:
            return buckets, np.ones(len(keys), bool)
        if isinstance(spans.begins, int):
            return keys, None
        # A bucket may begin before a change of the offset, at a local time that does not exist.
        begins = timestamps + (buckets * self._duration - local)
        moved = np.not_equal(self._zone.spans(begins).begins, spans.begins)
        if not moved.any():
            return keys, None
        _, places = np.unique(buckets[moved], return_inverse=True)
        keys = keys.copy()
        keys[moved] = int(keys.max()) + 1 + places
        return keys, moved

    def _text(self, key: int, *, is_moved: bool) -> str:
        found = self._texts.get((key, is_moved))
        if found is None:
            if len(self._texts) >= _MOST_REMEMBERED:
                self._texts.clear()
            found = self._format(
                self._zone.moment(key * self._duration)
                if is_moved
                else Moment(key * self._cell, 0, self._zone.name)
            )
            self._texts[key, is_moved] = found
        return found
