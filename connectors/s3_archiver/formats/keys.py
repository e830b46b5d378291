"""Configuration of formats, by Confluent's keys, and the format that it asks for."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from sinksdk import ConfigException, ConnectorConfig, Verdict
from sinksdk.connectors.s3_archiver.codecs import GZIP_LEVELS, codec
from sinksdk.connectors.s3_archiver.contents import holds_values, other_defaults_for, rules_for
from sinksdk.connectors.s3_archiver.formats import Format, KeepSchema

_PACKAGE: Final = "io.confluent.connect.s3.format"
FORMATS: Final = {
    "AvroFormat": f"{_PACKAGE}.avro.AvroFormat",
    "JsonFormat": f"{_PACKAGE}.json.JsonFormat",
    "ParquetFormat": f"{_PACKAGE}.parquet.ParquetFormat",
    "ByteArrayFormat": f"{_PACKAGE}.bytearray.ByteArrayFormat",
}
"""The formats' names, and Confluent's classes of them."""

_BY_RECORDS: Final = ("AvroFormat", "ParquetFormat")
_READ_AS_THEY_ARE: Final = {
    "JsonFormat": ("json", "string", "bytes"),
    "AvroFormat": ("avro",),
    "ByteArrayFormat": ("bytes", "string"),
}
"""Kinds of converters whose values a format takes as the bytes that were read."""
_TYPED: Final = ("AvroFormat", "ParquetFormat")
_WITH_FIELDS: Final = ("avro", "json")


CodecName = Literal["null", "deflate", "snappy", "bzip2", "zstandard", "xz"]


def _is_utf_8(encoding: str) -> bool:
    with suppress(LookupError):  # there is no such encoding, which is said of all connectors
        return codecs.lookup(encoding).name == "utf-8"
    return True


class FormatConfig(ConnectorConfig):
    """What files are, and what is in them."""

    format_class: str = Field(
        default="",
        alias="format.class",
        description="What files of values are: `AvroFormat`, `JsonFormat`, `ParquetFormat` or "
        "`ByteArrayFormat`, also by Confluent's class names. If not set, Avro with whole records.",
    )
    archive_content: Literal["", "record", "value"] = Field(
        default="",
        alias="archive.content",
        description="What a file holds: `record`, whole Kafka records with key, headers, timestamp and "
        "offset, bytes as they are (Avro and Parquet); or `value`, which is the default where "
        "`format.class` is set.",
    )
    avro_codec: CodecName = Field(
        default="null",
        alias="avro.codec",
        description="Compression of the blocks. `zstandard` costs the least time for what it saves; the "
        "default is Confluent's.",
    )
    avro_codec_level: int | None = Field(
        default=None,
        alias="avro.codec.level",
        description="Compression level of deflate and xz (0 to 9), bzip2 (1 to 9) or zstandard (1 to 22); "
        "each has a default that favours speed.",
    )
    parquet_codec: Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"] = Field(
        default="snappy", alias="parquet.codec", description="Compression of the columns of `ParquetFormat`."
    )
    s3_compression_type: Literal["none", "gzip"] = Field(
        default="none",
        alias="s3.compression.type",
        description="Compression of whole files of `JsonFormat` and `ByteArrayFormat`.",
    )
    s3_compression_level: int = Field(
        default=-1,
        alias="s3.compression.level",
        description="Level of gzip, 0 to 9. -1: 1, which favours speed. (Confluent: 6.)",
    )
    format_bytearray_extension: str = Field(
        default=".bin",
        alias="format.bytearray.extension",
        description="What names of files of `ByteArrayFormat` end with.",
    )
    format_bytearray_separator: str | None = Field(
        default=None,
        alias="format.bytearray.separator",
        description="What `ByteArrayFormat` puts behind each value; a line's end if not set.",
    )
    behavior_on_null_values: Literal["fail", "ignore"] = Field(
        default="fail",
        alias="behavior.on.null.values",
        description="Whether a record without a value is bad, or is left out of files of values. Files of "
        "records hold it.",
    )

    @field_validator("format_class")
    @classmethod
    def _short_name(cls, name: str) -> str:
        """Without the package, which verdicts have judged."""
        return name.rpartition(".")[2]

    @field_validator("behavior_on_null_values", "s3_compression_type", "parquet_codec", mode="before")
    @classmethod
    def _in_lower_case(cls, given: Any, info: ValidationInfo) -> Any:
        """In any case, as Confluent's sink takes them; exported configurations hold keys without a value."""
        if not isinstance(given, str):
            return given
        return given.lower() or cls.model_fields[str(info.field_name)].default

    @classmethod
    def _rules_for(cls, values: Mapping[str, Any], /) -> tuple[Mapping[str, Verdict], ...]:
        """What a key means depends on what files hold, on their format and on their folders."""
        unused, _, *others = super()._rules_for(values)
        return unused, rules_for(values), *others

    @classmethod
    def other_defaults_for(cls, values: Mapping[str, Any], /) -> Mapping[str, str]:
        """What is not by default as in Confluent's sink."""
        return other_defaults_for(values)

    @property
    def holds_values(self) -> bool:
        """Whether files hold values, not whole records."""
        return holds_values(self.format_class, self.archive_content)

    @property
    def format_name(self) -> str:
        """The format, also where none is named."""
        return self.format_class or "AvroFormat"

    def takes_what_was_read(self) -> bool:
        """Whether the format takes values as the bytes that were read; else what the converter makes of them.

        It does so for all whole records.
        """
        if not self.holds_values:
            return True
        spec = self.value_spec()
        if self.format_name == "JsonFormat" and (spec.schema or not _is_utf_8(spec.encoding)):
            return False  # the values must be of that schema, or are other text than a line's
        return spec.kind in _READ_AS_THEY_ARE.get(self.format_name, ())

    def value_spec(self) -> Any:
        """What values are by their converter, whoever reads them by it: a ``ConverterSpec``."""
        return self.named_converter(is_key=False)

    def read_spec(self) -> Any:
        """What values are that the task is given as bytes: a ``ConverterSpec``.

        Behind transforms an envelope is still there where they have left a record as it was.
        """
        spec = self.value_spec()
        if not self.has_transforms or spec.schemas_enable is not True:
            return spec
        return replace(spec, schemas_enable=None)

    def schema_of(self) -> Callable[[int], Any] | None:
        """Gives the parsed schema of a registry's id, where values are of a registry; else None.

        Raises:
            ConfigException: the registry's client is not installed, or does not accept the address.
        """
        spec = self.value_spec()
        if spec.registry is None or spec.kind != "avro":
            return None
        from sinksdk.topics.kafka.schema_registry import connect  # noqa: PLC0415 - needs an extra

        return connect(spec.registry)

    def converter_spec(self, *, is_key: bool) -> Any:
        """The converter that the engine applies: none where the format takes what was read.

        With transforms, which need what converters make, it is the configured one. Raises ConfigException for
        an unknown name.
        """
        spec = self.named_converter(is_key=is_key)
        is_read_here = (is_key or self.takes_what_was_read()) and not self.has_transforms
        return replace(spec, kind="bytes", schema="") if is_read_here else spec

    @property
    def has_transforms(self) -> bool:
        """Whether records are changed before the task gets them."""
        return self.is_transformed or bool(self.transforms)

    @property
    def takes_bytes(self) -> bool:
        """Whether the task is given bytes; else values are typed where a converter or Spark types them."""
        is_spliced = self.holds_values and self.format_name == "AvroFormat"
        return self.takes_what_was_read() and not (is_spliced and self.has_transforms)

    def needs_registry(self) -> bool:
        """Whether a schema registry will be asked, be it by the engine or by the format."""
        return super().needs_registry() or self.value_spec().kind == "avro"

    def format_problems(self) -> Iterator[str]:
        """What is wrong with the format's keys."""
        name = self.format_class
        if name and name not in FORMATS:
            return  # its verdict says so
        if not self.holds_values and self.format_name not in _BY_RECORDS:
            yield (
                f"'archive.content': {name} has no place for whole records; set it to value, or "
                f"'format.class' to {' or '.join(_BY_RECORDS)}"
            )
        try:
            codec(self.avro_codec, self.avro_codec_level)
        except ConfigException as error:
            yield f"'avro.codec' and 'avro.codec.level': {error}"
        if self.s3_compression_level not in GZIP_LEVELS:
            yield f"'s3.compression.level' is {self.s3_compression_level}; gzip has 0 to 9, -1 is the default"
        with suppress(ConfigException):  # there is no such converter, which is said of all connectors
            yield from self._value_problems()

    def _value_problems(self) -> Iterator[str]:
        if not self.holds_values or self.has_transforms:
            return
        if self.format_name in _TYPED:
            yield from self._untyped_problems()
        if self.format_name == "ByteArrayFormat" and not self.takes_what_was_read():
            yield (
                "'value.converter': ByteArrayFormat takes bytes as they are; set it to "
                "org.apache.kafka.connect.converters.ByteArrayConverter"
            )

    def _untyped_problems(self) -> Iterator[str]:
        """Where values have no schema for a file. A DataFrame's have types without a converter."""
        spec, name = self.value_spec(), self.format_name
        instead = (
            "take Avro's, with 'value.converter.schema.registry.url', or JSON's, with "
            "'value.converter.schema' or values in Connect's envelope; or set 'archive.content' to record, "
            "or 'format.class' to "
        )
        if spec.kind == "json" and spec.schemas_enable is False and not spec.schema:
            yield (
                f"'value.converter': {name} needs a schema of the values, and JSON without Connect's "
                f"envelope has none: {instead}JsonFormat"
            )
        is_bare = name == "ParquetFormat" and spec.kind not in _WITH_FIELDS
        if is_bare and "value_converter" in self.model_fields_set:
            yield (
                f"'value.converter': {name} needs a schema of the values, with fields, and {spec.kind} gives "
                f"none: {instead}ByteArrayFormat"
            )

    def value_format(
        self, keep_schema: KeepSchema | None = None, block_bytes: int | None = None
    ) -> Format[Any]:
        """The format of files of values.

        Args:
            keep_schema: is given each schema of a registry before a file needs it.
            block_bytes: of a block before compression; None for the default.

        Raises:
            ConfigException: the registry's client is not installed, or does not accept the address.
        """
        level = self.s3_compression_level if self.s3_compression_type == "gzip" else None
        nulls, spec = self.behavior_on_null_values, self.read_spec()
        if self.format_name == "AvroFormat":
            from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues  # noqa: PLC0415 - only what is used

            return AvroValues(
                None if self.has_transforms else self.schema_of(),
                self.avro_codec,
                self.avro_codec_level,
                nulls=nulls,
                plain="value_converter" in self.model_fields_set and spec.kind in ("bytes", "string"),
                keep_schema=keep_schema,
                block_bytes=block_bytes,
            )
        if self.format_name == "ByteArrayFormat":
            from sinksdk.connectors.s3_archiver.formats.raw import RawBytes  # noqa: PLC0415 - only what is used

            return RawBytes(
                self.format_bytearray_extension,
                "\n" if self.format_bytearray_separator is None else self.format_bytearray_separator,
                nulls=nulls,
                gzip_level=level,
                block_bytes=block_bytes,
            )
        if self.format_name == "ParquetFormat":
            from sinksdk.connectors.s3_archiver.formats.parquet import ValueParquet  # noqa: PLC0415 - the same

            return ValueParquet(self.parquet_codec, nulls=nulls, gives_types=spec.kind in _WITH_FIELDS)
        from sinksdk.connectors.s3_archiver.formats.json_lines import JsonLines, Reading  # noqa: PLC0415 - the same

        # Connect has a converter for all connectors of a worker: one that is not named here is no choice.
        reading: Reading = "json"
        if "value_converter" in self.model_fields_set and spec.kind in ("string", "bytes"):
            reading = "string" if spec.kind == "string" else "bytes"
        return JsonLines(
            reading,
            # Transforms make plain values of some envelopes.
            schemas_enable=None if spec.schemas_enable and self.has_transforms else spec.schemas_enable,
            nulls=nulls,
            gzip_level=level,
            block_bytes=block_bytes,
        )
