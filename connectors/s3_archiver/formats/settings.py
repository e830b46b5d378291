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
# Kinds of converters whose values a format copies as the bytes that were read.
_COPIED: Final = {
    "AvroFormat": ("avro",),
    "ByteArrayFormat": ("bytes", "string"),
}
TYPED: Final = ("AvroFormat", "ParquetFormat")
_WITH_FIELDS: Final = ("avro", "json")


CodecName = Literal["null", "deflate", "snappy", "bzip2", "zstandard", "xz"]


def unset_converter(side: str) -> str:
    return f"'{side}.converter' is not set, and there is no Connect worker with a default"


def holds_values(format_class: str, content: str) -> bool:
    return (content or ("value" if format_class else "record")) == "value"


class FormatSettings(ConnectorConfig):
    """The format of files, and what they hold."""

    # The key of a field without an alias is its name, with dots.
    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "."))

    format_class: str = Field(
        default="",
        description="Format of files of values: `AvroFormat`, `JsonFormat`, `ParquetFormat` or "
        "`ByteArrayFormat`, also by Confluent's class names. If not set, Avro files of whole records.",
    )
    archive_content: Literal["", "record", "value"] = Field(
        default="",
        description="Content of files: `record`, whole Kafka records with key, headers, timestamp and "
        "offset, their bytes unchanged (Avro and Parquet); or `value`, the default if `format.class` is set.",
    )
    avro_codec: CodecName = Field(
        default="null",
        description="Compression of the blocks. `zstandard` saves the most space for its processor time; the "
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
        description="Extension of the names of files of `ByteArrayFormat`.",
    )
    format_bytearray_separator: str | None = Field(
        default=None,
        description="Separator that `ByteArrayFormat` writes after each value; a newline if not set.",
    )
    behavior_on_null_values: Literal["fail", "ignore", "write"] = Field(
        default="fail",
        description="How files of values handle a record without a value: `fail`, as a bad record; `ignore`, "
        "leave it out; `write`, write its key to `tombstone.encoded.partition` (with `store.kafka.keys`). "
        "Files of records hold it.",
    )
    report_null_values_to_dlq: bool = Field(
        default=True,
        description="With `behavior.on.null.values=ignore`: report each record that is left out, if there is "
        "a dead letter topic or `errors.log.enable`. Like any report, it fails the partition if "
        "`errors.tolerance` is `none`.",
    )
    tombstone_encoded_partition: str = Field(
        default="tombstone",
        min_length=1,
        description="Folder, below the topic's, for keys and headers of records without a value "
        "(`behavior.on.null.values=write`).",
    )

    store_kafka_keys: bool = Field(
        default=False,
        description="Write the keys of records to files next to the values' files, such as "
        "`orders+0+0000000000.keys.avro`, in the same commit. Files of records always hold keys.",
    )
    keys_format_class: str = Field(
        default="AvroFormat",
        description="Format of files of keys, like `format.class`; `key.converter` converts the keys.",
    )
    store_kafka_headers: bool = Field(
        default=False,
        description="Write the headers of records to files next to the values' files, such as "
        "`orders+0+0000000000.headers.avro`: for each record a list of names and texts. Files of records "
        "always hold headers.",
    )
    headers_format_class: str = Field(
        default="AvroFormat",
        description="Format of files of headers: `AvroFormat`, `JsonFormat` or `ParquetFormat`.",
    )

    @field_validator("format_class", "keys_format_class", "headers_format_class")
    @classmethod
    def _short_name(cls, name: str) -> str:
        # The verdict on the key has already checked the package.
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
        """Return why bytes cannot be archived: the format needs types, and no converter is set."""
        if "value_converter" in self.model_fields_set or self.is_transformed or not self.holds_values:
            return []  # with a transform of Spark's, only the author knows the types
        if self.format_name not in TYPED:
            return []
        problem = (
            f"{unset_converter('value')}: {self.format_name} needs typed values, such as a DataFrame's; the "
            f"first "
            f"value of bytes stops its partition. Set it to the worker's converter, such as "
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
    def has_key_files(self) -> bool:
        return self.holds_values and self.store_kafka_keys

    @property
    def has_header_files(self) -> bool:
        return self.holds_values and self.store_kafka_headers

    @property
    def views(self) -> int:
        """Return the number of objects of a file."""
        return 1 + self.has_key_files + self.has_header_files

    def copies_bytes(self, *, is_key: bool = False) -> bool:
        """Return whether the format copies values, or keys, as the bytes that were read."""
        # Whole records, and keys without files, stay as they were read.
        if not (self.has_key_files if is_key else self.holds_values):
            return True
        spec, name = self.named_converter(is_key=is_key), self.format_of(is_key=is_key)
        if name == "JsonFormat":
            return False
        return spec.kind in _COPIED.get(name, ()) or (is_key and spec.kind == "bytes")

    def format_of(self, *, is_key: bool) -> str:
        return self.keys_format_class if is_key else self.format_name

    def value_spec(self) -> Any:
        """Return the values' ``ConverterSpec``, whether or not the engine applies it."""
        return self.named_converter(is_key=False)

    def read_spec(self, *, is_key: bool = False) -> Any:
        """Return the ``ConverterSpec`` of values, or keys, that the task receives as bytes."""
        spec = self.named_converter(is_key=is_key)
        # Transforms leave some records unchanged, which may still have an envelope.
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
        is_in_lines = not self.copies_bytes(is_key=is_key) and self.format_of(is_key=is_key) == "JsonFormat"
        # JsonFormat takes values for JSON if no converter is named.
        if is_in_lines and side not in self.model_fields_set:
            return replace(spec, kind="json")
        # Transforms need converted values.
        is_read_here = self.copies_bytes(is_key=is_key) and not self.has_transforms
        return replace(spec, kind="bytes", schema="") if is_read_here else spec

    def takes_framing(self, *, is_key: bool) -> bool:
        # AvroFormat copies framed values without decoding them.
        is_spliced = (self.has_key_files if is_key else self.holds_values) and (
            self.copies_bytes(is_key=is_key)
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
            self.copies_bytes()
            and self.copies_bytes(is_key=True)
            and not (is_spliced and self.has_transforms)
        )

    def needs_registry(self) -> bool:
        return (
            super().needs_registry()
            or self.value_spec().kind == "avro"
            or (self.has_key_files and self.named_converter(is_key=True).kind == "avro")
        )

    def format_problems(self) -> Iterator[str]:
        name = self.format_class
        if name and name not in FORMATS:
            return  # the verdict on the key refuses the format
        if not self.holds_values and self.format_name not in _BY_RECORDS:
            yield (
                f"'archive.content': {name} cannot hold whole records; set it to value, or 'format.class' to "
                f"{' or '.join(_BY_RECORDS)}"
            )
        try:
            codec(self.avro_codec, self.avro_codec_level)
        except ConfigException as error:
            yield f"'avro.codec' and 'avro.codec.level': {error}"
        if self.s3_compression_level not in GZIP_LEVELS:
            yield f"'s3.compression.level' is {self.s3_compression_level}; gzip has 0 to 9, -1 is the default"
        with suppress(ConfigException):  # the check of all connectors reports an unknown converter
            yield from self._value_problems()
        with suppress(ConfigException):
            yield from self._key_problems()

    def _value_problems(self) -> Iterator[str]:
        if not self.holds_values or self.has_transforms:
            return
        if self.format_name in TYPED:
            yield from self._untyped_problems()
        if self.format_name == "ByteArrayFormat" and not self.copies_bytes():
            yield (
                "'value.converter': ByteArrayFormat writes unconverted bytes; set it to "
                "org.apache.kafka.connect.converters.ByteArrayConverter"
            )

    def _key_problems(self) -> Iterator[str]:
        if not self.has_key_files:
            if self.holds_values and self.behavior_on_null_values == "write":
                yield (
                    "'behavior.on.null.values' write needs 'store.kafka.keys' = true: only the key of a "
                    "record without a value can be written"
                )
            return
        spec, name = self.named_converter(is_key=True), self.keys_format_class
        has_no_schema = spec.kind == "json" and spec.schemas_enable is False and not spec.schema
        if name not in FORMATS:
            yield f"'keys.format.class': use one of {', '.join(FORMATS)}"
        elif has_no_schema and name in TYPED:
            yield (
                f"'key.converter': {name} needs a schema of the keys, and JSON without Connect's envelope "
                f"has none: set 'keys.format.class' to JsonFormat"
            )
        elif name == "ByteArrayFormat" and not self.copies_bytes(is_key=True):
            yield (
                "'key.converter': ByteArrayFormat writes unconverted keys; set it to "
                "org.apache.kafka.connect.converters.ByteArrayConverter"
            )

    def _untyped_problems(self) -> Iterator[str]:
        spec, name = self.value_spec(), self.format_name
        instead = (
            "use Avro's, with 'value.converter.schema.registry.url', or JSON's, with "
            "'value.converter.schema' or values in Connect's envelope; or set 'archive.content' to record, "
            "or 'format.class' to "
        )
        if spec.kind == "json" and spec.schemas_enable is False and not spec.schema:
            yield (
                f"'value.converter': {name} needs a schema of the values, and JSON without Connect's "
                f"envelope has none: {instead}JsonFormat"
            )
        # Without a configured converter, the values may come typed from a DataFrame.
        is_bare = name == "ParquetFormat" and spec.kind not in _WITH_FIELDS
        if is_bare and "value_converter" in self.model_fields_set:
            yield (
                f"'value.converter': {name} needs a schema of the values, with fields, and the {spec.kind} "
                f"converter returns none: {instead}ByteArrayFormat"
            )
