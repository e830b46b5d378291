"""A typed view on one store: values in and out as models, each key with the version last seen."""

from __future__ import annotations

import functools
from typing import Generic, NamedTuple, TypeVar

from sinksdk.errors import ConnectException
from sinksdk.store.base import Store, contents
from sinksdk.store.records import Value

V = TypeVar("V", bound=Value)


class Row(NamedTuple, Generic[V]):
    """A value and the version to name when replacing it."""

    value: V
    version: str


def read(store: Store, key: str, model: type[V]) -> Row[V] | None:
    """The value of a key, None where there is none. Raises ConnectException when it is damaged."""
    stored = store.stored(key)
    return (
        None
        if stored is None
        else Row(_decoded(model, stored.body, f"store {store.url}: {key}"), stored.version)
    )


@functools.lru_cache(maxsize=1024)
def _decoded(model: type[V], body: str, where: str) -> V:
    """What is looked at again and again mostly has not changed: decoded once, since values are frozen."""
    try:
        return model.model_validate(contents(body, where))
    except (ValueError, KeyError) as error:
        message = f"{where} is damaged ({type(error).__name__}); restore the store from a backup"
        raise ConnectException(message) from error


def write(store: Store, key: str, value: V, if_version: str | None) -> Row[V]:
    """Replace a value by compare-and-set. Raises Conflict and StoreUnavailable as ``Store.put`` does."""
    return Row(value, store.put(key, value.as_json(), if_version))
