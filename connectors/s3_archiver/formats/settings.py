"""Define the settings of the content of files, under Confluent's keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from sinksdk import ConfigException, ConnectorConfig
from sinksdk.connectors.s3_archiver.formats.codecs import GZIP_LEVELS, codec

_PACKAGE: Final = "io.confluent.connect.s3.format"
FORMATS: Final = {
    "AvroFormat": f"{_PACKAGE}.avro.AvroFormat",
    "JsonFormat": f"{_PACKAGE}.json.JsonFormat",
    "ParquetFormat": f"{_PACKAGE}.parquet.ParquetFormat",
    "ByteArrayFormat": f"{_PACKAGE}.bytearray.ByteArrayFormat",
}

_BY_RECORDS: Final = ("AvroFormat", "ParquetFormat")
# Kinds of converters whose values a format takes as the bytes that were read.
_READ_AS_THEY_ARE: Final = {
    "AvroFormat": ("avro",),
    "ByteArrayFormat": ("bytes", "string"),
}
TYPED: Final = ("AvroFormat", "ParquetFormat")
_WITH_FIELDS: Final = ("avro", "json")


CodecName = Literal["null", "deflate", "snappy", "bzip2", "zstandard", "xz"]


def no_worker(side: str) -> str:
    return f"'{side}.converter' is not set, and there is no worker to have one"


def holds_values(format_class: str, content: str) -> bool:
    return (content or ("value" if format_class else "record")) == "value"


class FormatSettings(ConnectorConfig):
    """The format of files, and what they hold."""

    # Fields without an alias are called as their keys, with dots.
    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "."))

    format_class: str = Field(
        default="",
        description="What files of values are: `AvroFormat`, `JsonFormat`, `ParquetFormat` or "
        "`ByteArrayFormat`, also by Confluent's class names. If not set, Avro with whole records.",
    )
    archive_content: Literal["", "record", "value"] = Field(
        default="",
        description="What a file holds: `record`, whole Kafka records with key, headers, timestamp and "
        "offset, bytes as they are (Avro and Parquet); or `value`, which is the default where "
        "`format.class` is set.",
    )
    avro_codec: CodecName = Field(
        default="null",
        description="Compression of the blocks. `zstandard` costs the least time for what it saves; the "
        "default is Confluent's.",
    )
    avro_codec_level: int | None = Field(
        default=None,
        description="Compression level of deflate and xz (0 to 9), bzip2 (1 to 9) or zstandard (1 to 22); "
        "each has a default that favours speed.",
    )
    parquet_codec: Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"] = Field(
        default="snappy", description="Compression of the columns of `ParquetFormat`."
    )
    s3_compression_type: Literal["none", "gzip"] = Field(
        default="none",
        description="Compression of whole files of `JsonFormat` and `ByteArrayFormat`.",
    )
    s3_compression_level: int = Field(
        default=-1,
        description="Level of gzip, 0 to 9. -1: 1, which favours speed. (Confluent: 6.)",
    )
    json_decimal_format: Literal["BASE64", "NUMERIC"] = Field(
        default="BASE64",
        description="How `JsonFormat` writes decimals in structures that a converter has typed: `BASE64`, "
        "their unscaled numbers in base64, or `NUMERIC`, numbers.",
    )
    format_bytearray_extension: str = Field(
        default=".bin",
        description="What names of files of `ByteArrayFormat` end with.",
    )
    format_bytearray_separator: str | None = Field(
        default=None,
        description="What `ByteArrayFormat` puts behind each value; a line's end if not set.",
    )
    behavior_on_null_values: Literal["fail", "ignore", "write"] = Field(
        default="fail",
        description="Whether a record without a value is bad, or is left out of files of values, or its key "
        "is written to `tombstone.encoded.partition` (with `store.kafka.keys`). Files of records hold it.",
    )
    report_null_values_to_dlq: bool = Field(
        default=True,
        description="With `behavior.on.null.values=ignore`: report each record that is left out, where there "
        "is a dead letter topic or `errors.log.enable`. As any report it fails the partition where "
        "`errors.tolerance` is `none`.",
    )
    tombstone_encoded_partition: str = Field(
        default="tombstone",
        min_length=1,
        description="Folder below the topic's of keys and headers of records without a value, with "
        "`behavior.on.null.values=write`.",
    )

    store_kafka_keys: bool = Field(
        default=False,
        description="Write the keys of records to files beside their values', as in "
        "`orders+0+0000000000.keys.avro`, committed with them. Files of records hold keys.",
    )
    keys_format_class: str = Field(
        default="AvroFormat",
        description="What files of keys are, like `format.class`; keys are read by `key.converter`.",
    )
    store_kafka_headers: bool = Field(
        default=False,
        description="Write the headers of records to files beside their values', as in "
        "`orders+0+0000000000.headers.avro`: for each record a list of names and texts. Files of records "
        "hold headers.",
    )
    headers_format_class: str = Field(
        default="AvroFormat",
        description="What files of headers are: `AvroFormat`, `JsonFormat` or `ParquetFormat`.",
    )

    @field_validator("format_class", "keys_format_class", "headers_format_class")
    @classmethod
    def _short_name(cls, name: str) -> str:
        # Verdicts have judged the package.
        return name.rpartition(".")[2]

    @field_validator("keys_format_class", "headers_format_class", mode="before")
    @classmethod
    def _default_where_empty_is_given(cls, given: Any) -> Any:
        return given or "AvroFormat"

    @field_validator("behavior_on_null_values", "s3_compression_type", "parquet_codec", mode="before")
    @classmethod
    def _in_lower_case(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, str):
            return given
        # Confluent's sink accepts any case, and exported configurations hold keys without a value.
        return given.lower() or cls.model_fields[str(info.field_name)].default

    @field_validator("json_decimal_format", mode="before")
    @classmethod
    def _in_upper_case(cls, given: Any) -> Any:
        return (given.upper() or "BASE64") if isinstance(given, str) else given

    def untyped(self) -> list[str]:
        """Return why bytes cannot be archived: the format needs types, and no converter gives them."""
        if "value_converter" in self.model_fields_set or self.is_transformed or not self.holds_values:
            return []  # only the author knows what Spark's operators return
        if self.format_name not in TYPED:
            return []
        problem = (
            f"{no_worker('value')}: {self.format_name} takes values that Spark has typed, as a DataFrame's; "
            f"the first one that is bytes stops its partition. Set it to what the worker had, as "
            f"io.confluent.connect.avro.AvroConverter with 'value.converter.schema.registry.url'"
        )
        return [problem]

    @property
    def reports_nulls(self) -> bool:
        # Connect has an errant record reporter only with a dead letter topic or errors.log.enable.
        has_reporter = bool(self.dead_letter_topic) or self.errors_log_enable
        is_left_out = self.holds_values and self.behavior_on_null_values == "ignore"
        return self.report_null_values_to_dlq and is_left_out and has_reporter

    @property
    def holds_values(self) -> bool:
        return holds_values(self.format_class, self.archive_content)

    @property
    def format_name(self) -> str:
        return self.format_class or "AvroFormat"

    @property
    def bytes_separator(self) -> str:
        return "\n" if self.format_bytearray_separator is None else self.format_bytearray_separator

    @property
    def has_keys_beside(self) -> bool:
        return self.holds_values and self.store_kafka_keys

    @property
    def has_headers_beside(self) -> bool:
        return self.holds_values and self.store_kafka_headers

    @property
    def views(self) -> int:
        """Return the number of objects of a file."""
        return 1 + self.has_keys_beside + self.has_headers_beside

    def takes_what_was_read(self, *, is_key: bool = False) -> bool:
        """Return whether the format takes values, or keys, as the bytes that were read."""
        # Whole records, and keys that no file holds, are taken as they were read.
        if not (self.has_keys_beside if is_key else self.holds_values):
            return True
        spec, name = self.named_converter(is_key=is_key), self.format_of(is_key=is_key)
        if name == "JsonFormat":
            return False
        return spec.kind in _READ_AS_THEY_ARE.get(name, ()) or (is_key and spec.kind == "bytes")

    def format_of(self, *, is_key: bool) -> str:
        return self.keys_format_class if is_key else self.format_name

    def value_spec(self) -> Any:
        """Return the values' ``ConverterSpec``, whether or not the engine applies it."""
        return self.named_converter(is_key=False)

    def read_spec(self, *, is_key: bool = False) -> Any:
        """Return the ``ConverterSpec`` of values, or keys, that the task receives as bytes."""
        spec = self.named_converter(is_key=is_key)
        # Transforms leave some records as they were: an envelope may still be there.
        if not self.has_transforms or spec.schemas_enable is not True:
            return spec
        return replace(spec, schemas_enable=None)

    def schema_of(self, *, is_key: bool = False) -> Callable[[int], Any] | None:
        """Return a function from a registry's id to its parsed schema; None without a registry."""
        spec = self.named_converter(is_key=is_key)
        if spec.registry is None or spec.kind != "avro":
            return None
        from sinksdk.topics.kafka.schema_registry import connect  # noqa: PLC0415 - needs an extra

        return connect(spec.registry)

    def converter_spec(self, *, is_key: bool) -> Any:
        """Return the ``ConverterSpec`` that the engine applies."""
        is_json = self.format_of(is_key=is_key) == "JsonFormat"
        spec = replace(self.named_converter(is_key=is_key), gives_json=True, fills_items=is_json)
        side = "key_converter" if is_key else "value_converter"
        is_in_lines = (
            not self.takes_what_was_read(is_key=is_key) and self.format_of(is_key=is_key) == "JsonFormat"
        )
        # JsonFormat takes values for JSON if no converter is named.
        if is_in_lines and side not in self.model_fields_set:
            return replace(spec, kind="json")
        # Transforms need converted values.
        is_read_here = self.takes_what_was_read(is_key=is_key) and not self.has_transforms
        return replace(spec, kind="bytes", schema="") if is_read_here else spec

    def takes_framing(self, *, is_key: bool) -> bool:
        # AvroFormat copies framed values.
        is_spliced = (self.has_keys_beside if is_key else self.holds_values) and (
            self.takes_what_was_read(is_key=is_key)
        )
        kind = self.named_converter(is_key=is_key).kind
        return super().takes_framing(is_key=is_key) or (is_spliced and kind == "avro")

    @property
    def has_transforms(self) -> bool:
        return self.is_transformed or bool(self.transforms)

    @property
    def takes_bytes(self) -> bool:
        """Return whether the task receives bytes, not values typed by a converter or by Spark."""
        is_spliced = self.holds_values and self.format_name == "AvroFormat"
        return (
            self.takes_what_was_read()
            and self.takes_what_was_read(is_key=True)
            and not (is_spliced and self.has_transforms)
        )

    def needs_registry(self) -> bool:
        return (
            super().needs_registry()
            or self.value_spec().kind == "avro"
            or (self.has_keys_beside and self.named_converter(is_key=True).kind == "avro")
        )

    def format_problems(self) -> Iterator[str]:
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
        with suppress(ConfigException):  # an unknown converter is reported for all connectors
            yield from self._value_problems()
        with suppress(ConfigException):
            yield from self._key_problems()

    def _value_problems(self) -> Iterator[str]:
        if not self.holds_values or self.has_transforms:
            return
        if self.format_name in TYPED:
            yield from self._untyped_problems()
        if self.format_name == "ByteArrayFormat" and not self.takes_what_was_read():
            yield (
                "'value.converter': ByteArrayFormat takes bytes as they are; set it to "
                "org.apache.kafka.connect.converters.ByteArrayConverter"
            )

    def _key_problems(self) -> Iterator[str]:
        if not self.has_keys_beside:
            if self.holds_values and self.behavior_on_null_values == "write":
                yield (
                    "'behavior.on.null.values' write needs 'store.kafka.keys' = true: of a record without a "
                    "value only the key is there to be written"
                )
            return
        spec, name = self.named_converter(is_key=True), self.keys_format_class
        has_no_schema = spec.kind == "json" and spec.schemas_enable is False and not spec.schema
        if name not in FORMATS:
            yield f"'keys.format.class': take one of {', '.join(FORMATS)}"
        elif has_no_schema and name in TYPED:
            yield (
                f"'key.converter': {name} needs a schema of the keys, and JSON without Connect's envelope "
                f"has none: set 'keys.format.class' to JsonFormat"
            )
        elif name == "ByteArrayFormat" and not self.takes_what_was_read(is_key=True):
            yield (
                "'key.converter': ByteArrayFormat takes keys as they are; set it to "
                "org.apache.kafka.connect.converters.ByteArrayConverter"
            )

    def _untyped_problems(self) -> Iterator[str]:
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
        # A DataFrame types its values without a converter.
        is_bare = name == "ParquetFormat" and spec.kind not in _WITH_FIELDS
        if is_bare and "value_converter" in self.model_fields_set:
            yield (
                f"'value.converter': {name} needs a schema of the values, with fields, and {spec.kind} gives "
                f"none: {instead}ByteArrayFormat"
            )
