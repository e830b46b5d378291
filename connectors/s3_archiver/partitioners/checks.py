"""Check folders and the length of keys before any record is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

from sinksdk import ConfigException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.layout import FileName, folder_of, path_problem, topic_problem
from sinksdk.connectors.s3_archiver.partitioners.settings import (
    EXTRACTORS,
    Partitioner,
    PartitionerSettings,
    unknown_partitioner,
)
from sinksdk.connectors.s3_archiver.partitioners.times import PathFormat
from sinksdk.values.calendar import Moment


def folder_problems(config: PartitionerSettings) -> list[str]:
    kind = config.partitioner
    if kind is None:
        return [unknown_partitioner(config.partitioner_class)]
    found: list[str] = []
    if kind.has_fields and not config.partition_field_name:
        found.append(
            f"'partition.field.name' is empty: list the fields that {kind.name} names folders after, "
            f"separated by commas"
        )
    found += [
        f"'{key}': '{name}' is not a field's name: write it like country, or like meta.country for a nested "
        f"field"
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


def _value_problems(config: PartitionerSettings, kind: Partitioner) -> Iterator[str]:
    # The values that transforms return are unknown before they run.
    if config.has_transforms or not config.reads_fields:
        return
    with suppress(ConfigException):  # the check of all connectors reports an unknown converter
        given = config.value_spec().kind
        # Values that the format takes as bytes are read as JSON.
        if given not in _WITH_FIELDS and not config.copies_bytes():
            key = "partition.field.name" if kind.has_fields else "timestamp.field"
            yield (
                f"'value.converter': folders are named after fields ('{key}'), but the {given} converter "
                f"returns values without fields: use Avro's or JSON's, or another 'partitioner.class'"
            )


def _time_problems(config: PartitionerSettings, kind: Partitioner) -> list[str]:
    found: list[str] = []
    if kind.duration is None and config.partition_duration_ms < 1:
        found.append(
            f"'partition.duration.ms' must be at least 1 for {kind.name}: the milliseconds of one folder, "
            f"such as 3600000 for an hour"
        )
    if config.extractor not in EXTRACTORS:
        found.append(
            f"'timestamp.extractor' is '{config.timestamp_extractor}': use Wallclock, Record (the record's "
            f"own timestamp) or RecordField (a field of its value, 'timestamp.field')"
        )
    try:
        form = PathFormat(config.time_pattern(kind), config.locale)
    except ConfigException as error:
        return [*found, f"'path.format': {error}"]
    if why := path_problem(form(Moment(0, 0, "UTC"))):
        found.append(f"'path.format': {why}")
    return found


_WITH_FIELDS: Final = ("avro", "json", "bytes")

MOST_BYTES: Final = 1_024  # S3's limit for a key

_LONGEST_EXTENSION: Final = ".snappy.parquet"

_LARGEST_PARTITION: Final = 2**31 - 1

_LARGEST_NUMBER: Final = 2**31 - 1  # largest number among the records that a transform has made of one


def longest_path(config: PartitionerSettings, partition: TopicPartition, last: int) -> int:
    """Return the largest number of bytes of a folder's name with which no key is too long."""
    view = "headers" if config.has_header_files else "keys" if config.has_key_files else ""
    number = _LARGEST_NUMBER if config.is_transformed else 0
    extension = max(_LONGEST_EXTENSION, f"{config.format_bytearray_extension}.gz", key=len)
    key = config.layout().file(FileName(partition, last, "", number, extension, view))
    return MOST_BYTES - len(key.encode())


_LARGEST_OFFSET: Final = 2**63 - 1

_EXTENSIONS: Final = {"AvroFormat": ".avro", "ParquetFormat": _LONGEST_EXTENSION, "JsonFormat": ".json"}


def key_problems(config: PartitionerSettings, topics: Collection[str] | None = None) -> Iterator[str]:
    known = [topic for topic in topics or config.topics if not topic_problem(topic)]
    wrong = [topic for topic in known if config.directory_delim in topic]
    if wrong:
        yield (
            f"'directory.delim': the name of topic '{wrong[0]}' contains '{config.directory_delim}', so its "
            f"files would be in another folder: use a delimiter that no topic name contains"
        )
        return
    topic = max(known, key=len, default="")
    keys = [
        (config.layout().file(name), name)
        # A partition number or an offset counts with the most digits that Kafka gives it, a folder with the
        # shortest values of its fields: records with longer values are bad.
        for name in _longest_names(config, TopicPartition(topic or "t", _LARGEST_PARTITION))
    ]
    key, name = max(keys, key=lambda item: len(item[0].encode()))
    size = len(key.encode())
    if size <= MOST_BYTES:
        return
    mine, parts = _parts_of(config, key, name)
    where = f"keys of files of topic '{topic}'" if topic else "keys of files"
    excess = size - MOST_BYTES
    how = f"shorten it by {excess:,}" if parts[mine] > excess else f"shorten its {parts[mine]:,} bytes"
    yield f"'{mine}': {where} can have {size:,} bytes, but S3 allows {MOST_BYTES:,}: {how}"


def _longest_names(config: PartitionerSettings, partition: TopicPartition) -> Iterator[FileName]:
    number = _LARGEST_NUMBER if config.is_transformed else 0
    gzip = ".gz" if config.s3_compression_type == "gzip" else ""
    ends = {
        **_EXTENSIONS,
        "JsonFormat": f".json{gzip}",
        "ByteArrayFormat": f"{config.format_bytearray_extension}{gzip}",
    }
    extra_views = [("keys", config.keys_format_class)] if config.has_key_files else []
    extra_views += [("headers", config.headers_format_class)] if config.has_header_files else []
    paths = [(_shortest_folder(config, partition), [("", config.format_name), *extra_views])]
    if config.has_key_files and config.behavior_on_null_values == "write":
        paths.append((config.tombstone_encoded_partition, extra_views))
    for path, views in paths:
        for view, kind in views:
            yield FileName(partition, _LARGEST_OFFSET, path, number, ends.get(kind, ""), view)


def _shortest_folder(config: PartitionerSettings, partition: TopicPartition) -> str:
    kind = config.partitioner
    if kind is None or kind.is_default:
        return folder_of(partition)
    are_named = config.partition_field_format_path or not kind.has_time
    levels = [f"{name}=x" if are_named else "x" for name in config.partition_field_name if kind.has_fields]
    if kind.has_time:
        with suppress(ConfigException):  # the check of 'path.format' reports this error
            levels.append(PathFormat(config.time_pattern(kind), config.locale)(Moment(0, 0, "UTC")))
    return config.directory_delim.join(levels)


def _parts_of(config: PartitionerSettings, key: str, name: FileName) -> tuple[str, dict[str, int]]:
    """Return the setting that makes a file's key longest, and the bytes of each."""
    is_of_tombstones = name.path == config.tombstone_encoded_partition
    kind = config.partitioner
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


_QUOTED: Final = re.compile(r"'[^']*'")


def letters_warnings(pattern: str) -> Iterator[str]:
    letters = re.sub(r"[^a-zA-Z]", "", _QUOTED.sub("", pattern))
    of_day, of_hour = set("dDwe"), set("HkhK")
    if "D" in letters and ("M" in letters or "DD" in letters.replace("DDD", "")):
        yield "'path.format': D is the day of the year; the day of the month is dd"
    if set("hK") & set(letters) and "a" not in letters:
        yield (
            "'path.format': h and K count 12 hours, and there is no a for the half of the day; the hour of "
            "the day is HH"
        )
    if "m" in letters and not of_hour & set(letters):
        yield "'path.format': m is the minute, and there is no hour; the month is MM"
    if re.search(r"[HkhK].*M", letters):
        yield "'path.format': M after the hour is the month; the minute is mm"
    if "x" in letters and "w" not in letters:
        yield "'path.format': x is the year of the week, another one around New Year; the year is yyyy"
    if of_hour & set(letters) and not of_day & set(letters):
        yield "'path.format' has an hour and no day: the same hours of all days share a folder"
