"""Define the settings of where files lie in the bucket, and the known partitioners."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pydantic import Field, ValidationInfo, field_validator

from sinksdk.config import NameList
from sinksdk.connectors.s3_archiver.archive.layout import Layout, path_problem, topic_problem
from sinksdk.connectors.s3_archiver.formats.settings import FormatSettings
from sinksdk.connectors.s3_archiver.s3.settings import AccessSettings, bucket_problem
from sinksdk.values.calendar import DAY, HOUR

_LONGEST_FOLDER: Final = 512  # bytes of 'topics.dir', to which topic, folder and file names are added


class LayoutSettings(AccessSettings, FormatSettings):
    """Names of folders and files in the bucket."""

    topics_dir: str = Field(
        default="topics",
        description="Prefix of all keys; for each topic, one connector owns it. Empty: no prefix.",
    )
    directory_delim: str = Field(default="/", min_length=1, description="Separates folders in keys.")
    file_delim: str = Field(
        default="+",
        min_length=1,
        description="Separates topic, partition and start offset in a file's name.",
    )
    filename_offset_zero_pad_width: int = Field(
        default=10,
        ge=0,
        le=19,
        description="Digits of the start offset in a file's name.",
    )

    def layout(self) -> Layout:
        return Layout(
            self.topics_dir if self.topics_dir.strip() else "",
            self.directory_delim,
            self.file_delim,
            self.filename_offset_zero_pad_width,
            self.format_bytearray_extension,
        )

    def topics_dir_problem(self) -> str:
        why = _folder_problem(self.topics_dir)
        return (
            f"'topics.dir' must be a folder's name, or several with slashes between them: {why}"
            if why
            else ""
        )

    def name_of_key_problems(self) -> Iterator[str]:
        if why := bucket_problem(self.s3_bucket_name):
            yield f"'s3.bucket.name': {why}"
        for key, text in (
            ("directory.delim", f"x{self.directory_delim}x"),
            ("file.delim", f"x{self.file_delim}x"),
            ("tombstone.encoded.partition", self.tombstone_encoded_partition),
            ("format.bytearray.extension", f"x{self.format_bytearray_extension}"),
        ):
            if why := path_problem(text):
                yield f"'{key}': {why}"
        yield from (f"'topics': {why}" for topic in self.topics if (why := topic_problem(topic)))


class PartitionerSettings(LayoutSettings):
    """Folders below the topic's."""

    timezone: str = Field(
        default="UTC",
        description="Time zone of folders by time, and of the midnight from which "
        "`rotate.schedule.interval.ms` counts: a name like `Europe/Berlin`, or an offset like `+05:30` or "
        "`UTC+08:00`.",
    )
    partitioner_class: str = Field(
        default="DefaultPartitioner",
        description="Folders below the topic's: `DefaultPartitioner` (`partition=0`), `DailyPartitioner`, "
        "`HourlyPartitioner`, `TimeBasedPartitioner` (`path.format`), `FieldPartitioner` "
        "(`partition.field.name`) or `FieldAndTimeBasedPartitioner` (fields, then time); also with the "
        "package of Confluent's class.",
    )
    path_format: str = Field(
        default="",
        description="Folders by time in Joda-Time's letters, as in `'year'=YYYY/'month'=MM/'day'=dd`, for "
        "TimeBasedPartitioner and FieldAndTimeBasedPartitioner.",
    )
    partition_duration_ms: int = Field(
        default=-1,
        ge=-1,
        description="Milliseconds of one folder: `path.format` formats local time rounded down to a multiple "
        "of it.",
    )
    locale: str = Field(
        default="",
        description="Language of months, weekdays and halves of the day as text (`MMM`, `EEE`, `a`): English "
        "only. Numbers are the same in all languages.",
    )
    timestamp_extractor: str = Field(
        default="Wallclock",
        description="Timestamp of folders by time: `Wallclock`, when a record is archived; `Record`, its "
        "Kafka timestamp; or `RecordField`, a field of its value.",
    )
    timestamp_field: str = Field(
        default="timestamp",
        description="The field for `RecordField`, as in `meta.created`: milliseconds since 1970 as a number "
        "or text, text in ISO 8601 (in UTC unless it says otherwise), or a timestamp.",
    )
    partition_field_name: NameList = Field(
        default=(),
        description="Fields of the value that folders are named after, such as `country,meta.shop`: text, "
        "whole numbers and booleans; a null is the folder `country=null`.",
    )
    partition_field_format_path: bool = Field(
        default=True,
        description="With FieldAndTimeBasedPartitioner: folders are `country=DE`; false: `DE`.",
    )

    @field_validator("timezone", "partitioner_class", "timestamp_extractor", "timestamp_field")
    @classmethod
    def _default_where_empty(cls, name: str, info: ValidationInfo) -> str:
        return name or str(cls.model_fields[str(info.field_name)].default)

    @property
    def partitioner(self) -> Partitioner | None:
        return partitioner(self.partitioner_class)

    @property
    def extractor(self) -> str:
        # Confluent's extractors are nested classes.
        name = re.split(r"[.$]", self.timestamp_extractor)[-1]
        return name.removesuffix("TimestampExtractor") or name

    @property
    def reads_fields(self) -> bool:
        kind = self.partitioner
        return kind is not None and (kind.has_fields or (kind.has_time and self.extractor == "RecordField"))

    def time_pattern(self, kind: Partitioner) -> str:
        if kind.pattern is not None:
            return kind.pattern.replace("/", self.directory_delim)
        return self.path_format.removesuffix(self.directory_delim)


def _folder_problem(name: str) -> str:
    if not name.strip():
        return ""
    parts = name.split("/")
    if not name.strip("/"):
        return "leave it empty for archives at the top of the bucket"
    if not (parts[0] and parts[-1]):
        return f"write it without slashes at its ends, as '{name.strip('/')}'"
    if "" in parts:
        return "'' is not a folder's name: tools that list folders would not find the files below it"
    if why := path_problem(name):
        return why
    size = len(name.encode())
    return (
        f"it has {size:,} bytes, but an object's key can have 1,024 at most" if size > _LONGEST_FOLDER else ""
    )


class Partitioner(NamedTuple):
    name: str
    has_fields: bool = False
    has_time: bool = False
    pattern: str | None = None  # None: the configured pattern
    duration: int | None = None  # milliseconds; None: the configured duration

    @property
    def is_default(self) -> bool:
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

EXTRACTORS: Final = ("Wallclock", "Record", "RecordField")


def partitioner(name: str) -> Partitioner | None:
    return _PARTITIONERS.get(name.rpartition(".")[2])


def unknown_partitioner(name: str) -> str:
    return (
        f"'partitioner.class' is '{name}': use one of {', '.join(_PARTITIONERS)} (or Confluent's class "
        f"name); custom Java classes cannot run here"
    )


# The former name, whose folders are values without field names, and the present name.
OLDER_PARTITIONER: Final = "TimeAndFieldBasedPartitioner", "FieldAndTimeBasedPartitioner"
