"""Connect's converters: they turn the bytes of keys and values into objects.

None of their errors quotes the bytes: they end up in logs.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sinksdk.errors import ConfigException, DataException
from sinksdk.settings.converters import ConverterSpec, RegistryAddress

_WIRE_FORMAT = struct.Struct(">bI")  # Confluent's framing: magic byte 0, schema id
_ENVELOPE: Final = {"schema", "payload"}

SchemaOf = Callable[[int], Any]
"""Gives the parsed writer schema of an id. Raises RetriableException while the registry cannot be reached,
DataException for an id it does not have, ConfigException if this configuration cannot reach it."""


class Converter(Protocol):
    """Turns the bytes of a key or value into an object."""

    def __call__(self, topic: str, data: bytes | None) -> Any:
        """Convert. Raises DataException for bytes of another format; None stays None.

        RetriableException requests another attempt, ConfigException ends the partition: in neither case is
        the record bad. Any other exception counts as DataException, as in Connect.
        """
        ...


@dataclass(frozen=True, slots=True)
class StringConverter:
    """Text (Connect's StringConverter)."""

    encoding: str = "UTF-8"

    def __call__(self, topic: str, data: bytes | None) -> str | None:
        """Decode it."""
        if data is None:
            return None
        try:
            return data.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise DataException(
                f"topic {topic}: the bytes are no {self.encoding} text: {_without_bytes(error)}"
            ) from None  # its message quotes them


@dataclass(frozen=True, slots=True)
class JsonConverter:
    """JSON, with or without Connect's envelope ``{"schema": …, "payload": …}`` (JsonConverter).

    Args:
        schemas_enable: true requires the envelope and returns its payload, false never unwraps; None unwraps
            exactly the objects that are an envelope.
    """

    schemas_enable: bool | None = None

    def __call__(self, topic: str, data: bytes | None) -> Any:
        """Parse it."""
        if data is None:
            return None
        try:
            value = json.loads(data)
        except UnicodeDecodeError as error:
            raise DataException(f"topic {topic}: the bytes are no JSON: {_without_bytes(error)}") from None
        except (ValueError, RecursionError) as error:
            raise DataException(f"topic {topic}: the bytes are no JSON: {error}") from error
        if self.schemas_enable is False:
            return value
        if isinstance(value, dict) and value.keys() == _ENVELOPE:
            return value["payload"]
        if self.schemas_enable:
            raise DataException(
                f"topic {topic}: the JSON is no object of exactly 'schema' and 'payload', as "
                f"schemas.enable=true requires; set it to false for plain JSON"
            )
        return value


@dataclass(frozen=True, slots=True)
class NumberConverter:
    """A big-endian number of a fixed length, as Kafka's serializers write it."""

    kind: str
    format: str

    def __call__(self, topic: str, data: bytes | None) -> Any:
        """Unpack it."""
        if data is None:
            return None
        size = struct.calcsize(self.format)
        if len(data) != size:
            raise DataException(f"topic {topic}: {len(data)} bytes are no {self.kind}, which has {size}")
        return struct.unpack(self.format, data)[0]


def boolean_converter(topic: str, data: bytes | None) -> bool | None:
    """One byte, 0 or 1 (Connect's BooleanConverter)."""
    if data is None:
        return None
    if data not in (b"\x00", b"\x01"):
        raise DataException(f"topic {topic}: {len(data)} bytes are no boolean, which is one byte, 0 or 1")
    return data == b"\x01"


class AvroConverter:
    """Confluent's wire format: a zero byte, a four-byte schema id, an Avro datum."""

    def __init__(self, schema_of: SchemaOf, *, is_key: bool = False) -> None:
        self._schema_of = schema_of
        self._part = "key" if is_key else "value"

    def __call__(self, topic: str, data: bytes | None) -> Any:
        """Decode one datum with its writer's schema."""
        if data is None:
            return None
        if len(data) < _WIRE_FORMAT.size or data[0] != 0:
            raise DataException(f"topic {topic}: the bytes do not begin with a zero byte and a schema id")
        _, schema_id = _WIRE_FORMAT.unpack_from(data)
        schema = self._schema(topic, schema_id)
        import fastavro  # noqa: PLC0415 - slow to import, and needed for Avro only

        try:
            return fastavro.schemaless_reader(io.BytesIO(data[_WIRE_FORMAT.size :]), schema, None)
        except UnicodeDecodeError as error:
            why = _without_bytes(error)
        except (ValueError, EOFError, IndexError, OverflowError, struct.error) as error:
            why = type(error).__name__  # their messages may quote the bytes
        raise DataException(f"topic {topic}: no datum of schema {schema_id}: {why}")

    def _schema(self, topic: str, schema_id: int) -> Any:
        try:
            return self._schema_of(schema_id)
        except DataException as error:
            raise DataException(f"topic {topic}, subject {topic}-{self._part}: {error}") from error


def _without_bytes(error: UnicodeDecodeError) -> str:
    return f"{error.reason} at byte {error.start}"


_NUMBERS: Final[Mapping[str, str]] = {
    "short": ">h",
    "integer": ">i",
    "long": ">q",
    "float": ">f",
    "double": ">d",
}


def converter_of(
    spec: ConverterSpec, registry: Callable[[RegistryAddress], SchemaOf] | None = None
) -> Converter | None:
    """The configured converter; None leaves bytes as they are.

    Raises:
        ConfigException: Avro without a schema registry.
    """
    if spec.kind == "bytes":
        return None
    if spec.kind == "string":
        return StringConverter(spec.encoding)
    if spec.kind == "json":
        return JsonConverter(spec.schemas_enable)
    if spec.kind == "boolean":
        return boolean_converter
    if spec.kind in _NUMBERS:
        return NumberConverter(spec.kind, _NUMBERS[spec.kind])
    if registry is None or spec.registry is None:
        message = "the Avro converter has no schema registry here: name its URL, and give what connects to it"
        raise ConfigException(message)
    return AvroConverter(registry(spec.registry), is_key=spec.is_key)
