"""Values of a store as models, with their versions."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from sinksdk.model.base import Value
from sinksdk.store.base import Conflict, Store, StoreUnreadable

V = TypeVar("V", bound=Value)


class Row(NamedTuple, Generic[V]):
    value: V
    version: str


def read(store: Store, key: str, model: type[V]) -> Row[V] | None:
    found = store.get(key)
    if found is None:
        return None
    try:
        return Row(model.model_validate(found.value), found.version)
    except ValidationError as error:
        raise StoreUnreadable(f"store {store.url}: {key} {_problem(error)}") from error


def read_again(
    store: Store, key: str, model: type[V], known: Row[V] | None, *, is_recent_enough: bool = False
) -> Row[V] | None:
    """Read a known value again, or only its version while that is unchanged."""
    if known is not None:
        version = store.recent_version(key) if is_recent_enough else store.version(key)
        if version == known.version:
            return known
    return read(store, key, model)


def write(store: Store, key: str, value: V, if_version: str | None) -> Row[V]:
    return Row(value, store.put(key, value.as_json(), if_version, version=value.format))


class OwnRow(Generic[V]):
    """An informational value of one process, which overwrites the values of others."""

    def __init__(self, store: Store, key: str, model: type[V]) -> None:
        self._store = store
        self._key = key
        self._model = model
        self._version: str | None = None

    def read(self) -> V | None:
        row = read(self._store, self._key, self._model)
        self._version = row.version if row else None
        return row.value if row else None

    def write(self, value: V) -> None:
        try:
            self.replace(value)
        except Conflict:
            self._version = self._store.version(self._key)
            self.replace(value)

    def replace(self, value: V) -> None:
        """Write the value if no other process has written since. Raises Conflict."""
        self._version = write(self._store, self._key, value, self._version).version


def _problem(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False)
    for detail in details:
        # An unknown word comes from a newer version; the value is not damaged.
        if detail["type"] in ("enum", "literal_error"):
            where = ".".join(map(str, detail["loc"]))
            return (
                f"has {detail['input']!r} as {where!r}, which this version of sinksdk does not know; a newer "
                f"version has written it: upgrade sinksdk"
            )
    reasons = "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in details[:3])
    return f"is damaged ({reasons}); restore the store from a backup"
