"""Create the format that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sinksdk.connectors.s3_archiver.formats.base import Format, KeepSchema
from sinksdk.connectors.s3_archiver.formats.settings import FormatSettings

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.formats.values import NullBehavior


def format_of(
    config: FormatSettings, *, keep_schema: KeepSchema | None = None, block_bytes: int | None = None
) -> Format[Any]:
    if config.holds_values:
        return _value_format(config, keep_schema, block_bytes)
    if config.format_name == "ParquetFormat":
        from sinksdk.connectors.s3_archiver.formats.parquet import RecordParquet  # noqa: PLC0415 - slow to load

        return RecordParquet(config.parquet_codec)
    from sinksdk.connectors.s3_archiver.formats.encoder import RecordAvro  # noqa: PLC0415 - only what is used

    return RecordAvro(config.avro_codec, config.avro_codec_level, block_bytes)


def _value_format(
    config: FormatSettings, keep_schema: KeepSchema | None = None, block_bytes: int | None = None
) -> Format[Any]:
    values = _format(config, keep_schema, block_bytes, is_key=False)
    if config.views == 1:
        return values
    from sinksdk.connectors.s3_archiver.formats.views import (  # noqa: PLC0415 - only what is used
        FormatOfViews,
        View,
        headers_of,
        keys_of,
    )

    views = [View("", values)]
    if config.has_keys_beside:
        own = _format(config, keep_schema, block_bytes, is_key=True)
        views.append(View("keys", own, keys_of(wrapped=config.keys_format_class == "ParquetFormat")))
    if config.has_headers_beside:
        name = config.headers_format_class
        own = _format_by_name(config, name, _HEADERS_ARE, "fail", block_bytes)
        views.append(View("headers", own, headers_of(wrapped=name != "AvroFormat")))
    writes = config.behavior_on_null_values == "write"
    return FormatOfViews(views, config.tombstone_encoded_partition if writes else None)


class _Content(NamedTuple):
    schema_of: Callable[[int], Any] | None = None
    plain: bool = False
    gives_types: bool = True
    keep_schema: KeepSchema | None = None


_HEADERS_ARE: Final = _Content()


def _format(
    config: FormatSettings, keep_schema: KeepSchema | None, block_bytes: int | None, *, is_key: bool
) -> Format[Any]:
    side = "key_converter" if is_key else "value_converter"
    is_converted = is_key or side in config.model_fields_set
    schema_of = None if config.has_transforms else config.schema_of(is_key=is_key)
    content = _Content(
        schema_of=schema_of,
        plain=is_converted and schema_of is None,
        gives_types=is_converted,
        keep_schema=keep_schema,
    )
    ignores = config.behavior_on_null_values == "ignore" and not is_key
    nulls: NullBehavior = "ignore" if ignores else "fail"
    return _format_by_name(config, config.format_of(is_key=is_key), content, nulls, block_bytes)


def _format_by_name(
    config: FormatSettings, name: str, content: _Content, nulls: NullBehavior, block_bytes: int | None
) -> Format[Any]:
    level = config.s3_compression_level if config.s3_compression_type == "gzip" else None
    if name == "AvroFormat":
        from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues  # noqa: PLC0415 - only what is used

        return AvroValues(
            content.schema_of,
            config.avro_codec,
            config.avro_codec_level,
            nulls=nulls,
            plain=content.plain,
            keep_schema=content.keep_schema,
            block_bytes=block_bytes,
        )
    if name == "ByteArrayFormat":
        from sinksdk.connectors.s3_archiver.formats.lines import RawBytes  # noqa: PLC0415 - only what is used

        return RawBytes(
            config.format_bytearray_extension,
            config.bytes_separator,
            nulls=nulls,
            writes_json=config.has_transforms,
            gzip_level=level,
            block_bytes=block_bytes,
        )
    if name == "ParquetFormat":
        from sinksdk.connectors.s3_archiver.formats.parquet import ValueParquet  # noqa: PLC0415 - the same

        return ValueParquet(config.parquet_codec, nulls=nulls, gives_types=content.gives_types)
    from sinksdk.connectors.s3_archiver.formats.lines import JsonLines  # noqa: PLC0415 - the same

    return JsonLines(
        decimals=config.json_decimal_format,
        nulls=nulls,
        gzip_level=level,
        block_bytes=block_bytes,
    )
