"""Schemas of JSON in a configuration, in any of three languages."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import suppress

from sinksdk.errors import ConfigException, DataException
from sinksdk.values.avro import parse_avro_shape
from sinksdk.values.connect import connect_shape
from sinksdk.values.ddl import parse_ddl
from sinksdk.values.shapes import NO_DEFAULT, Shape, to_column


@functools.lru_cache(maxsize=64)
def declared_shape(text: str) -> Shape:
    if not text.lstrip().startswith(("{", "[", '"')):
        return parse_ddl(text)
    shape = _connects(text) or parse_avro_shape(text)
    for path, part in _parts(shape, ""):
        try:
            if part.default is not NO_DEFAULT:
                to_column([part.default], part)
        except DataException as error:
            raise ConfigException(f"the default of field '{path}' is invalid: {error}") from error
    return shape


def is_connects(text: str) -> bool:
    return _connects(text) is not None


def _connects(text: str) -> Shape | None:
    with suppress(ValueError, RecursionError):
        schema = json.loads(text)
        if isinstance(schema, dict) and schema.get("type") == "struct":  # Avro has no such type
            try:
                return connect_shape(schema)
            except DataException as error:
                raise ConfigException(str(error)) from error
    return None


def _parts(shape: Shape, path: str) -> Iterator[tuple[str, Shape]]:
    for name, inner in shape.fields.items():
        yield f"{path}{name}", inner
        yield from _parts(inner, f"{path}{name}.")
    for part in (shape.item, shape.key):
        if part is not None:
            yield from _parts(part, path)
