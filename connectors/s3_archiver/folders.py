"""Where a record's file lies: in folders by Kafka partition, by time, by fields of the value, or by both.

Records of a batch are split without an object for each. Its timestamps become local times, these become
buckets, and each distinct bucket becomes text once; each distinct value of a field likewise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import ConfigException, DataException, TopicPartition
from sinksdk.connectors.s3_archiver.advice import path_problem, topic_problem
from sinksdk.connectors.s3_archiver.avro_fields import AvroFields
from sinksdk.connectors.s3_archiver.columns import long_column
from sinksdk.connectors.s3_archiver.fields import (
    Field,
    FieldReader,
    JsonFields,
    Rows,
    TypedFields,
)
from sinksdk.connectors.s3_archiver.iso import milliseconds
from sinksdk.connectors.s3_archiver.layout import FileName
from sinksdk.connectors.s3_archiver.path_format import (
    DAY,
    HOUR,
    LAST,
    Integers,
    Moment,
    PathFormat,
    Spans,
    Zone,
)

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Split:
    """The folders of a batch's rows.

    Args:
        paths: the distinct folders below the topic's, without a delimiter at their ends, in the order of
            their first rows.
        codes: for each row the index into ``paths``; -1 where the row is bad.
        timestamps: for each row the milliseconds that its folder was named after; None where folders are not
            by time. Those of bad rows mean nothing.
        bad: why a row has no folder.
    """

    paths: list[str]
    codes: Codes
    timestamps: Integers | None = None
    bad: dict[int, DataException] = field(default_factory=dict)


class Folders(Protocol):
    """Splits batch after batch."""

    def learn(self, batch: pa.RecordBatch) -> None:
        """Ask others for what a batch needs, before anything of it is taken.

        Raises:
            RetriableException: they do not answer now; nothing has changed.
            ConfigException: they never will.
        """

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """The folders of a batch of one topic partition.

        Args:
            now: seconds since the epoch, for folders by the wall clock: one reading for all of a ``put``.
        """
        ...


def folders_of(config: S3ArchiverConfig, schema_of: Callable[[int], Any] | None = None) -> Folders:
    """The folders that a configuration asks for.

    Args:
        schema_of: the parsed Avro schema of a registry's id; None for the configured registry's.

    Raises:
        ConfigException: what :func:`folder_problems` finds, or Avro without a registry.
    """
    kind = partitioner(config.partitioner_class)
    problems = list(folder_problems(config))
    if problems or kind is None:
        raise ConfigException(problems)
    if kind.is_default:
        return PartitionFolders()
    extractor = _extractor(config)
    needs_fields = kind.has_fields or (kind.has_time and extractor == "RecordField")
    return ValueFolders(
        names=tuple(config.partition_field_name) if kind.has_fields else (),
        are_named=config.partition_field_format_path or not kind.has_time,
        time=_time_of(config, kind) if kind.has_time else None,
        extractor=extractor,
        timestamp_field=config.timestamp_field,
        reader=_reader_of(config, kind, schema_of) if needs_fields else None,
        delimiter=config.directory_delim,
        room=partial(_room, config),
    )


def folder_problems(config: S3ArchiverConfig) -> list[str]:
    """What is wrong with a configuration's folders, in sentences that name the keys."""
    kind = partitioner(config.partitioner_class)
    if kind is None:
        return [_unknown_partitioner(config.partitioner_class)]
    found: list[str] = []
    if kind.has_fields and not config.partition_field_name:
        found.append(
            f"'partition.field.name' is empty: name the fields that {kind.name} makes folders of, separated "
            f"by commas"
        )
    found += [
        f"'{key}': '{name}' is no field's name: write it as in country, or meta.country for one inside "
        f"another"
        for key, names in (
            ("partition.field.name", config.partition_field_name if kind.has_fields else ()),
            ("timestamp.field", (config.timestamp_field,) if kind.has_time else ()),
        )
        for name in names
        if not all(name.split("."))
    ]
    if kind.has_time:
        found += _time_problems(config, kind)
    return [*found, *_value_problems(config, kind)]


def _value_problems(config: S3ArchiverConfig, kind: Partitioner) -> Iterator[str]:
    """Yield that values have no fields where folders are made of some: their converter gives text or numbers.

    Values that a format takes as they were read are bytes, which are read as JSON. What transforms make of
    values is not known.
    """
    by_field = kind.has_time and _extractor(config) == "RecordField"
    if config.has_transforms or not (kind.has_fields or by_field):
        return
    with suppress(ConfigException):  # there is no such converter, which is said of all connectors
        given = config.value_spec().kind
        if given not in _WITH_FIELDS and not config.takes_what_was_read():
            key = "partition.field.name" if kind.has_fields else "timestamp.field"
            yield (
                f"'value.converter': folders are made of fields ('{key}'), and {given} gives values "
                f"without any: take Avro's or JSON's, or another 'partitioner.class'"
            )


def _time_problems(config: S3ArchiverConfig, kind: Partitioner) -> list[str]:
    found: list[str] = []
    if kind.duration is None and config.partition_duration_ms < 1:
        found.append(
            f"'partition.duration.ms' must be at least 1 for {kind.name}: the milliseconds of one folder, as "
            f"3600000 for an hour"
        )
    if _extractor(config) not in _EXTRACTORS:
        found.append(
            f"'timestamp.extractor' is '{config.timestamp_extractor}': take Wallclock, Record (the record's "
            f"own timestamp) or RecordField (a field of its value, 'timestamp.field')"
        )
    try:
        form = PathFormat(_pattern(config, kind), config.locale)
    except ConfigException as error:
        return [*found, f"'path.format': {error}"]
    if why := path_problem(form(Moment(0, 0, "UTC"))):
        found.append(f"'path.format': {why}")
    return found


# -- partitioners --------------------------------------------------------------------------------


class Partitioner(NamedTuple):
    """One of Confluent's partitioners, or the one by fields and time of its community.

    Args:
        pattern: its format, whose delimiters are ``/`` here; None if ``path.format`` says it.
        duration: milliseconds of a bucket; None if ``partition.duration.ms`` says it.
    """

    name: str
    has_fields: bool = False
    has_time: bool = False
    pattern: str | None = None
    duration: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether folders are by Kafka partition."""
        return not self.has_fields and not self.has_time


_DAILY: Final = "'year'=YYYY/'month'=MM/'day'=dd"
_PARTITIONERS: Final[Mapping[str, Partitioner]] = {
    each.name: each
    for each in (
        Partitioner("DefaultPartitioner"),
        Partitioner("DailyPartitioner", has_time=True, pattern=_DAILY, duration=DAY),
        Partitioner("HourlyPartitioner", has_time=True, pattern=f"{_DAILY}/'hour'=HH", duration=HOUR),
        Partitioner("TimeBasedPartitioner", has_time=True),
        Partitioner("FieldPartitioner", has_fields=True),
        Partitioner("FieldAndTimeBasedPartitioner", has_fields=True, has_time=True),
    )
}
_WITH_FIELDS: Final = ("avro", "json", "bytes")
_EXTRACTORS: Final = ("Wallclock", "Record", "RecordField")


def partitioner(name: str) -> Partitioner | None:
    """The partitioner of a class's name, with its package or without; None if there is none here."""
    return _PARTITIONERS.get(name.rpartition(".")[2])


def _unknown_partitioner(name: str) -> str:
    if name.rpartition(".")[2] == "TimeAndFieldBasedPartitioner":
        return (
            f"'partitioner.class' is '{name}': take FieldAndTimeBasedPartitioner with the field as "
            f"'partition.field.name' and 'partition.field.format.path' = false, which makes the same folders"
        )
    return (
        f"'partitioner.class' is '{name}': take one of {', '.join(_PARTITIONERS)} (or Confluent's class "
        f"name); a class of one's own in Java cannot run here"
    )


def _extractor(config: S3ArchiverConfig) -> str:
    """Its short name, also of Confluent's classes, which are nested ones."""
    name = re.split(r"[.$]", config.timestamp_extractor)[-1]
    return name.removesuffix("TimestampExtractor") or name


def _pattern(config: S3ArchiverConfig, kind: Partitioner) -> str:
    if kind.pattern is not None:
        return kind.pattern.replace("/", config.directory_delim)
    return config.path_format.removesuffix(config.directory_delim)


def _time_of(config: S3ArchiverConfig, kind: Partitioner) -> TimeFolders:
    return TimeFolders(
        PathFormat(_pattern(config, kind), config.locale),
        config.partition_duration_ms if kind.duration is None else kind.duration,
        Zone(config.timezone),
    )


def _reader_of(
    config: S3ArchiverConfig, kind: Partitioner, schema_of: Callable[[int], Any] | None
) -> FieldReader:
    names = [*(config.partition_field_name if kind.has_fields else ())]
    by_field = kind.has_time and _extractor(config) == "RecordField"
    paths = [tuple(name.split(".")) for name in (*names, *((config.timestamp_field,) if by_field else ()))]
    spec = config.read_spec()
    moment = {paths[-1]} - set(paths[:-1]) if by_field else set()
    of_json = JsonFields(paths, fractions=moment)
    if spec.kind != "avro":
        of_bytes = JsonFields(paths, schemas_enable=spec.schemas_enable, fractions=moment)
        return TypedFields(paths, of_json, of_bytes)
    schema_of = schema_of or config.schema_of()
    if schema_of is None:
        message = "fields of Avro values need a schema registry: set 'value.converter.schema.registry.url'"
        raise ConfigException(message)
    return TypedFields(paths, of_json, AvroFields(paths, schema_of))


_MOST_BYTES: Final = 1_024  # of a key, S3's limit
_LONGEST_EXTENSION: Final = ".snappy.parquet"
_LARGEST_PARTITION: Final = 2**31 - 1
_LARGEST_NUMBER: Final = 2**31 - 1  # of a record among those that a transform has made of one


def _room(config: S3ArchiverConfig, partition: TopicPartition, last: int) -> int:
    """Bytes that a folder's name may have, so that the longest key of its files is not too long."""
    view = "headers" if config.has_headers_beside else "keys" if config.has_keys_beside else ""
    number = _LARGEST_NUMBER if config.is_transformed else 0
    extension = max(_LONGEST_EXTENSION, f"{config.format_bytearray_extension}.gz", key=len)
    key = config.layout().file(FileName(partition, last, "", number, extension, view))
    return _MOST_BYTES - len(key.encode())


_LARGEST_OFFSET: Final = 2**63 - 1
_EXTENSIONS: Final = {"AvroFormat": ".avro", "ParquetFormat": _LONGEST_EXTENSION, "JsonFormat": ".json"}


def key_problems(config: S3ArchiverConfig, topics: Collection[str] | None = None) -> Iterator[str]:
    """Yield what may make keys of files longer than S3 allows, or lead them into another topic's folder.

    Partitions and offsets count with the most digits that Kafka gives them, and folders that values make with
    the fewest bytes that these have: longer ones are bad records.

    Args:
        topics: those that are subscribed to; None for those that are named, or any if none is.
    """
    known = [topic for topic in topics or config.topics if not topic_problem(topic)]
    wrong = [topic for topic in known if config.directory_delim in topic]
    if wrong:
        yield (
            f"'directory.delim': the name of topic '{wrong[0]}' has '{config.directory_delim}' in it, and "
            f"its files would lie in another folder: take a delimiter that is in no topic's name"
        )
        return
    topic = max(known, key=len, default="")
    keys = [
        (config.layout().file(name), name)
        for name in _longest_names(config, TopicPartition(topic or "t", _LARGEST_PARTITION))
    ]
    key, name = max(keys, key=lambda item: len(item[0].encode()))
    size = len(key.encode())
    if size <= _MOST_BYTES:
        return
    mine, parts = _parts_of(config, key, name)
    where = f"keys of files of topic '{topic}'" if topic else "keys of files"
    excess = size - _MOST_BYTES
    how = (
        f"shorten it by {excess:,}"
        if parts[mine] > excess
        else f"shorten it, which has {parts[mine]:,} of them"
    )
    yield f"'{mine}': {where} can have {size:,} bytes, and S3 allows {_MOST_BYTES:,}: {how}"


def _longest_names(config: S3ArchiverConfig, partition: TopicPartition) -> Iterator[FileName]:
    """The names of a partition's last files: of values, keys and headers, and of those without a value."""
    number = _LARGEST_NUMBER if config.is_transformed else 0
    gzip = ".gz" if config.s3_compression_type == "gzip" else ""
    ends = {
        **_EXTENSIONS,
        "JsonFormat": f".json{gzip}",
        "ByteArrayFormat": f"{config.format_bytearray_extension}{gzip}",
    }
    beside = [("keys", config.keys_format_class)] if config.has_keys_beside else []
    beside += [("headers", config.headers_format_class)] if config.has_headers_beside else []
    paths = [(_shortest_folder(config, partition), [("", config.format_name), *beside])]
    if config.has_keys_beside and config.behavior_on_null_values == "write":
        paths.append((config.tombstone_encoded_partition, beside))
    for path, views in paths:
        for view, kind in views:
            yield FileName(partition, _LARGEST_OFFSET, path, number, ends.get(kind, ""), view)


def _shortest_folder(config: S3ArchiverConfig, partition: TopicPartition) -> str:
    """The folder of a partition's files, with values of one letter and a time of the year 1970 in it."""
    kind = partitioner(config.partitioner_class)
    if kind is None or kind.is_default:
        return folder_of(partition)
    are_named = config.partition_field_format_path or not kind.has_time
    levels = [f"{name}=x" if are_named else "x" for name in config.partition_field_name if kind.has_fields]
    if kind.has_time:
        with suppress(ConfigException):  # which is said of 'path.format'
            levels.append(PathFormat(_pattern(config, kind), config.locale)(Moment(0, 0, "UTC")))
    return config.directory_delim.join(levels)


def _parts_of(config: S3ArchiverConfig, key: str, name: FileName) -> tuple[str, dict[str, int]]:
    """The configuration's key that has most bytes in a file's key, and how many each has."""
    is_of_tombstones = name.path == config.tombstone_encoded_partition
    kind = partitioner(config.partitioner_class)
    by_field = "partition.field.name" if kind is not None and kind.has_fields else "path.format"
    of_path = "tombstone.encoded.partition" if is_of_tombstones else by_field
    texts = {
        "topics.dir": config.layout().topics_dir,
        "directory.delim": config.directory_delim * key.count(config.directory_delim),
        "file.delim": config.file_delim * key.count(config.file_delim),
        "format.bytearray.extension": name.extension,
        **({} if name.path == folder_of(name.partition) else {of_path: name.path}),
    }
    sizes = {part: len(text.encode()) for part, text in texts.items()}
    return max(sizes, key=lambda part: sizes[part]), sizes


# -- splitting -----------------------------------------------------------------------------------


def folder_of(partition: TopicPartition) -> str:
    """The folder of a partition's files, where folders are by nothing else."""
    return f"partition={partition.partition}"


class PartitionFolders:
    """One folder for each Kafka partition."""

    def learn(self, batch: pa.RecordBatch) -> None:
        """Nothing is asked."""

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:  # noqa: ARG002 - of the protocol
        """See :class:`Folders`."""
        return Split([folder_of(partition)], np.zeros(batch.num_rows, np.int32))


class _Level(NamedTuple):
    """One part of all paths: texts, and for each row the index of its own. -1: it has none."""

    texts: Sequence[str]
    codes: Codes


class ValueFolders:
    """Folders by fields of the value, by time, or by fields and then by time.

    Args:
        names: the fields folders are made of.
        are_named: folders are ``name=value``, else the value alone.
        time: how timestamps become folders; None without time.
        extractor: ``Wallclock``, ``Record`` or ``RecordField``.
        timestamp_field: where ``RecordField`` looks; for messages.
        reader: reads ``names``, and behind them the field with the timestamp.
        room: bytes that a path may have, in a topic partition, given an offset.
    """

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
        self._reader = reader
        self._delimiter = delimiter
        self._room = room

    def learn(self, batch: pa.RecordBatch) -> None:
        """See :class:`Folders`."""
        if self._reader is not None:
            self._reader.learn(batch.column("value"))

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """See :class:`Folders`."""
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
    ) -> Integers:
        if self._extractor == "Wallclock":
            return np.full(batch.num_rows, int(now * 1_000), np.int64)
        if self._extractor == "Record":
            timestamps = _of_records(batch)
            missing = timestamps == _NO_TIMESTAMP
            why = (
                "it has no timestamp, which 'timestamp.extractor' = Record makes its folder of: take "
                "RecordField or Wallclock, or have the producer set it"
            )
        else:
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
                        f"be milliseconds since 1970, a timestamp, or text as 2024-02-29T12:34:56Z",
                    )
            return timestamps
        if missing.any():
            for row in np.flatnonzero(missing).tolist():
                bad.setdefault(row, why)
        return timestamps


_NO_TIMESTAMP: Final = -1


def _of_records(batch: pa.RecordBatch) -> Integers:
    """The records' own timestamps, -1 where there is none."""
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
            f"record has no folder: {bad[row]}; correct what produces such records, or have them passed over "
            f"with 'errors.tolerance' = all"
        )
        for row in sorted(bad)
    }


def _distinct(keys: Integers) -> tuple[Rows, Codes]:
    """Where each distinct key stands first, in that order, and for each key its index there."""
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
    first[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)  # what is assigned last stays
    used = np.flatnonzero(first >= 0)
    order = used[np.argsort(first[used])]
    ranks = np.empty(span, np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return first[order], ranks[keys]


def _joined(
    levels: Sequence[_Level], delimiter: str, room: int, bad: dict[int, str]
) -> tuple[list[str], Codes]:
    """The paths of all levels, and the index of each row's own."""
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
    """Without those that would make keys longer than S3 allows."""
    sizes = [len(path.encode()) for path in paths]
    if max(sizes) <= room:
        return paths, codes
    ranks = np.full(len(paths) + 1, -1, np.int32)  # the last is for -1
    kept = [number for number, size in enumerate(sizes) if size <= room]
    ranks[kept] = np.arange(len(kept), dtype=np.int32)
    for number, size in enumerate(sizes):
        if size > room:
            for row in np.flatnonzero(codes == number).tolist():
                bad[row] = (
                    f"the folder's name has {size:,} bytes, and the file's key would have more than the "
                    f"{_MOST_BYTES:,} of S3: take a field with shorter values"
                )
    return [paths[number] for number in kept], ranks[codes]


# -- fields --------------------------------------------------------------------------------------

_IMPOSSIBLE: Final = re.compile(r"[\x00-\x1f\x7f]")


def _named(  # noqa: PLR0917 - the parts of a level, and where its failures go
    prefix: str, name: str, found: Field, rows: int, delimiter: str, bad: dict[int, str]
) -> _Level:
    """Folders of one field's values."""
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
        f"its value has {what} as '{name}' ('partition.field.name'): folders are made of text, whole numbers "
        f"and booleans that can be the name of one folder"
    )


def _texts(column: pa.Array) -> tuple[Rows, list[str]] | str:
    """Distinct values as text, and the index of each row's; or what they are, if they can be no folders."""
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
    """Why a value can be no folder's name; a clause that follows on "has"."""
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
    """Folders by time: the local time, cut to a multiple of a duration, in a format.

    Args:
        duration: milliseconds.
    """

    def __init__(self, pattern: PathFormat, duration: int, zone: Zone) -> None:
        self._format = pattern
        self._duration = duration
        self._zone = zone
        self._cell = max(pattern.unit, duration)
        """Within it, from midnight on, the text of a local time does not change, if it is a bucket."""
        self._texts: dict[tuple[int, bool], str] = {}

    def level(self, timestamps: Integers, bad: dict[int, str]) -> _Level:
        """The folders of timestamps; those of bad rows do not count."""
        first, last = int(timestamps.min()), int(timestamps.max())
        if first < -LAST or last > LAST:
            beyond = (timestamps < -LAST) | (timestamps > LAST)
            for row in np.flatnonzero(beyond).tolist():
                bad.setdefault(
                    row,
                    f"its timestamp {timestamps[row]} is beyond the years -292275055 to 292278994, which "
                    f"can be formatted",
                )
            timestamps = np.where(beyond, 0, timestamps)
            first, last = int(timestamps.min()), int(timestamps.max())
        spans = self._zone.spans(timestamps, self._duration)
        local = timestamps + spans.offsets
        buckets = local // self._duration
        if first < DAY:  # Java cuts towards zero
            buckets += (local < 0) & (buckets * self._duration != local)
        keys, moved = self._keys(timestamps, local, buckets, spans)
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
        self, timestamps: Integers, local: Integers, buckets: Integers, spans: Spans
    ) -> tuple[Integers, npt.NDArray[np.bool_] | None]:
        """What rows of one folder have in common, and the rows whose bucket may be another local time."""
        keys = buckets if self._cell == self._duration else buckets * self._duration // self._cell
        if self._format.has_offset:
            return buckets, np.ones(len(keys), bool)
        if isinstance(spans.begins, int):
            return keys, None
        # A bucket may begin before the offset changed, at a local time that the clock was put past.
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
