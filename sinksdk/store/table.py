"""A typed view on one store: values in and out as models, each key with the version last seen."""

from __future__ import annotations

import functools
from typing import Generic, NamedTuple, TypeVar

from sinksdk.store.base import Store, contents
from sinksdk.store.records import Value

V = TypeVar("V", bound=Value)


class Row(NamedTuple, Generic[V]):
    """A value and the version to name when replacing it."""

    value: V
    version: str


def read(store: Store, key: str, model: type[V]) -> Row[V] | None:
    """The value of a key, None where there is none."""
    stored = store.stored(key)
    return (
        None
        if stored is None
        else Row(_decoded(model, stored.body, f"store {store.url}: {key}"), stored.version)
    )


@functools.lru_cache(maxsize=1024)
def _decoded(model: type[V], body: str, where: str) -> V:
    """What is looked at again and again mostly has not changed: decoded once, since values are frozen."""
    return model.model_validate(contents(body, where))


def write(store: Store, key: str, value: V, if_version: str | None) -> Row[V]:
    """Replace a value by compare-and-set. Raises Conflict and StoreUnavailable as ``Store.put`` does."""
    return Row(value, store.put(key, value.as_json(), if_version))
