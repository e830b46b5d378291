"""A typed view on one store: values in and out as models, each key with the version last seen."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from sinksdk.store.base import Store
from sinksdk.store.records import Value

V = TypeVar("V", bound=Value)


class Row(NamedTuple, Generic[V]):
    """A value and the version to name when replacing it."""

    value: V
    version: str


def read(store: Store, key: str, model: type[V]) -> Row[V] | None:
    """The value of a key, None where there is none."""
    found = store.get(key)
    return None if found is None else Row(model.model_validate(found.value), found.version)


def write(store: Store, key: str, value: V, if_version: str | None) -> Row[V]:
    """Replace a value by compare-and-set. Raises Conflict and StoreUnavailable as ``Store.put`` does."""
    return Row(value, store.put(key, value.as_json(), if_version))
