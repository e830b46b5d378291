"""A typed view on one store: values in and out as models, each key with the version last seen."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from sinksdk.errors import ConnectException
from sinksdk.store.base import Store, Stored, contents
from sinksdk.store.records import Value

V = TypeVar("V", bound=Value)


class Row(NamedTuple, Generic[V]):
    """A value and the version to name when replacing it."""

    value: V
    version: str


def read(store: Store, key: str, model: type[V]) -> Row[V] | None:
    """The value of a key, None where there is none. Raises ConnectException when it is damaged."""
    stored = store.stored(key)
    return None if stored is None else _row(store, key, model, stored)


def read_again(
    store: Store, key: str, model: type[V], known: Row[V] | None, *, is_recent_enough: bool = False
) -> Row[V] | None:
    """As :func:`read`, of a value that was read before: while its version stands, only that is read.

    Args:
        is_recent_enough: whether it does that the version stood a moment ago.
    """
    if known is not None:
        version = store.recent_version(key) if is_recent_enough else store.version(key)
        if version == known.version:
            return known
    return read(store, key, model)


def _row(store: Store, key: str, model: type[V], stored: Stored) -> Row[V]:
    return Row(_decoded(model, stored.body, f"store {store.url}: {key}"), stored.version)


def _decoded(model: type[V], body: str, where: str) -> V:
    try:
        return model.model_validate(contents(body, where))
    except ValidationError as error:
        raise ConnectException(f"{where} {_problem(error)}") from error
    except (ValueError, KeyError) as error:
        message = f"{where} is damaged ({type(error).__name__}); restore the store from a backup"
        raise ConnectException(message) from error


def _problem(error: ValidationError) -> str:
    """What is wrong with a value, and what to do; a word that is not known here is a newer version's."""
    details = error.errors(include_url=False, include_context=False)
    for detail in details:
        if detail["type"] in ("enum", "literal_error"):
            where = ".".join(map(str, detail["loc"]))
            return (
                f"has {detail['input']!r} as {where!r}, which this version of sinksdk does not know: a newer "
                f"one has written it, and nothing is damaged; upgrade sinksdk here"
            )
    said = "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in details[:3])
    return f"is damaged ({said}); restore the store from a backup"


def write(store: Store, key: str, value: V, if_version: str | None) -> Row[V]:
    """Replace a value by compare-and-set. Raises Conflict and StoreUnavailable as ``Store.put`` does."""
    return Row(value, store.put(key, value.as_json(), if_version, version=value.format))
