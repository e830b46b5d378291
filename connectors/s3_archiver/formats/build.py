"""Create the format of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues
from sinksdk.connectors.s3_archiver.formats.base import Format, KeepSchema
from sinksdk.connectors.s3_archiver.formats.encoder import RecordAvro
from sinksdk.connectors.s3_archiver.formats.lines import JsonLines, RawBytes
from sinksdk.connectors.s3_archiver.formats.settings import FormatSettings
from sinksdk.connectors.s3_archiver.formats.values import NullBehavior
from sinksdk.connectors.s3_archiver.formats.views import FormatOfViews, View, headers_of, keys_of


def format_of(
    config: FormatSettings, *, keep_schema: KeepSchema | None = None, block_bytes: int | None = None
) -> Format[Any]:
    if not config.holds_values and config.format_name == "ParquetFormat":
        from sinksdk.connectors.s3_archiver.formats.parquet import RecordParquet  # noqa: PLC0415 - slow to load

        return RecordParquet(config.parquet_codec)
    if not config.holds_values:
        return RecordAvro(config.avro_codec, config.avro_codec_level, block_bytes)

    def build(*, is_key: bool) -> Format[Any]:
        return _build(
            config,
            config.format_of(is_key=is_key),
            block_bytes,
            nulls="ignore" if config.behavior_on_null_values == "ignore" and not is_key else "fail",
            schema_of=None if config.has_transforms else config.schema_of(is_key=is_key),
            is_converted=is_key or "value_converter" in config.model_fields_set,
            keep_schema=keep_schema,
        )

    views = [View("", build(is_key=False))]
    if config.views == 1:
        return views[0].format
    if config.has_key_files:
        wraps_keys = config.keys_format_class == "ParquetFormat"
        views.append(View("keys", build(is_key=True), keys_of(wrapped=wraps_keys)))
    if config.has_header_files:
        name = config.headers_format_class
        own = _build(config, name, block_bytes)
        views.append(View("headers", own, headers_of(wrapped=name != "AvroFormat")))
    writes = config.behavior_on_null_values == "write"
    return FormatOfViews(views, config.tombstone_encoded_partition if writes else None)


def _build(
    config: FormatSettings,
    name: str,
    block_bytes: int | None,
    *,
    nulls: NullBehavior = "fail",
    schema_of: Callable[[int], Any] | None = None,
    is_converted: bool = True,
    keep_schema: KeepSchema | None = None,
) -> Format[Any]:
    level = config.s3_compression_level if config.s3_compression_type == "gzip" else None
    if name == "AvroFormat":
        return AvroValues(
            schema_of,
            config.avro_codec,
            config.avro_codec_level,
            nulls=nulls,
            plain=is_converted and schema_of is None,
            keep_schema=keep_schema,
            block_bytes=block_bytes,
        )
    if name == "ByteArrayFormat":
        return RawBytes(
            config.format_bytearray_extension,
            config.bytes_separator,
            nulls=nulls,
            writes_json=config.has_transforms,
            gzip_level=level,
            block_bytes=block_bytes,
        )
    if name == "ParquetFormat":
        from sinksdk.connectors.s3_archiver.formats.parquet import ValueParquet  # noqa: PLC0415 - slow to load

        return ValueParquet(config.parquet_codec, nulls=nulls, gives_types=is_converted)
    return JsonLines(
        decimals=config.json_decimal_format, nulls=nulls, gzip_level=level, block_bytes=block_bytes
    )
