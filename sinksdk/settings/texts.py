"""Values of a configuration as text: a list is ``a, b`` and a map ``a:1, b:2``, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

from sinksdk.settings.references import references

Kind = Literal["list", "map"]


def kind_of(value: object) -> Kind | None:
    if isinstance(value, Mapping):
        return "map"
    return "list" if isinstance(value, list | tuple | AbstractSet) else None


def as_text(value: Any) -> str:
    """Return a value in Connect's form if that can be read back, else as JSON."""
    kind = kind_of(value)
    if kind is None:
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, Mapping):
        content: object = {str(key): item for key, item in value.items()}
        text = ",".join(f"{key}:{_plain(item)}" for key, item in value.items())
    else:
        content = sorted(value, key=str) if isinstance(value, AbstractSet) else list(value)
        text = ",".join(map(_plain, content))
    texts = _texts_in(content)
    # A referenced text may contain a comma, and is read only where the configuration is used.
    is_plain = read(text, kind) == texts and not references(text)
    return text if is_plain else json.dumps(texts, ensure_ascii=False, default=str)


def _plain(value: Any) -> str:
    # The result differs when read back, so that the caller writes JSON.
    return as_text(value) if kind_of(value) is None else "{}"


def read(text: str, kind: Kind) -> object:
    """Return the items of a text; a text in neither form unchanged."""
    parsed = from_json(text, kind)
    if parsed is not text:
        return parsed
    items = [part.strip() for part in text.split(",") if part.strip()]
    if kind == "list":
        return items
    if text.lstrip().startswith("{") or not all(":" in item for item in items):
        return text
    pairs = [item.split(":", 1) for item in items]
    found = {key.strip(): value.strip() for key, value in pairs}
    return found if len(found) == len(pairs) else text


def from_json(text: str, kind: Kind) -> object:
    """Return the items of a text that is JSON of this kind; any other text unchanged."""
    if not text.lstrip().startswith("[" if kind == "list" else "{"):
        return text
    try:
        return _texts_in(json.loads(text, parse_int=str, parse_float=str))
    except ValueError:
        return text


def _texts_in(value: object) -> object:
    return each_text(value, lambda text: text)


def each_text(value: object, replaced: Callable[[str], object]) -> object:
    if isinstance(value, Mapping):
        return {str(key): each_text(item, replaced) for key, item in value.items()}
    if isinstance(value, list | tuple | AbstractSet):
        return [each_text(item, replaced) for item in value]
    return replaced(as_text(value)) if isinstance(value, str | bool | int | float) else value


def named_texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_texts(f"{name}.{key}", item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from named_texts(name, item)
    elif isinstance(value, str):
        yield name, value
