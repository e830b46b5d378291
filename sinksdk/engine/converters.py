"""From bytes to what a task sees as key and value: Connect's converters, under their names."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sinksdk.errors import ConfigException, DataException

_WIRE_FORMAT = struct.Struct(">bI")  # Confluent's framing: magic byte 0, schema id


class Converter(Protocol):
    """Turns the bytes of a key or value into an object."""

    def __call__(self, topic: str, data: bytes | None) -> Any:
        """Raises DataException for bytes that are none of its format; None stays None.

        Any other exception but RetriableException counts as DataException too, as in Connect.
        """
        ...


def string_converter(topic: str, data: bytes | None) -> str | None:
    """UTF-8 text (Connect's StringConverter)."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataException(f"topic {topic}: the bytes are no UTF-8 text: {error}") from error


def json_converter(topic: str, data: bytes | None) -> Any:
    """JSON; of Connect's envelope ``{"schema": …, "payload": …}`` the payload (JsonConverter)."""
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataException(f"topic {topic}: the bytes are no JSON: {error}") from error
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


class AvroConverter:
    """Confluent's wire format: a zero byte, a four-byte schema id, an Avro datum.

    Args:
        schema_of: gives the parsed writer schema of an id; raises RetriableException while the
            registry cannot be reached.
    """

    def __init__(self, schema_of: Callable[[int], Any]) -> None:
        self._schema_of = schema_of

    def __call__(self, topic: str, data: bytes | None) -> Any:
        """Decode one datum with its writer's schema."""
        if data is None:
            return None
        if len(data) < _WIRE_FORMAT.size or data[0] != 0:
            raise DataException(f"topic {topic}: the bytes do not begin with a zero byte and a schema id")
        _, schema_id = _WIRE_FORMAT.unpack_from(data)
        schema = self._schema_of(schema_id)
        import fastavro  # noqa: PLC0415 - only who decodes Avro pays for it

        try:
            return fastavro.schemaless_reader(io.BytesIO(data[_WIRE_FORMAT.size :]), schema, None)
        except (ValueError, EOFError, IndexError, struct.error) as error:
            raise DataException(f"topic {topic}: no datum of schema {schema_id}: {error}") from error


_CONVERTERS: Mapping[str, Converter | None] = {
    "bytes": None,
    "org.apache.kafka.connect.converters.ByteArrayConverter": None,
    "string": string_converter,
    "org.apache.kafka.connect.storage.StringConverter": string_converter,
    "json": json_converter,
    "org.apache.kafka.connect.json.JsonConverter": json_converter,
}


def converter_named(name: str) -> Converter | None:
    """The converter of that short or Connect class name; None leaves bytes as they are.

    Raises:
        ConfigException: a name nobody knows.
    """
    if name not in _CONVERTERS:
        message = f"no converter is called '{name}'; there are {', '.join(_CONVERTERS)}"
        raise ConfigException(message)
    return _CONVERTERS[name]
