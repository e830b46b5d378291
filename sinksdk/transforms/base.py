"""Base classes of transforms and predicates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from sinksdk.errors import DataException
from sinksdk.records import SinkRecords
from sinksdk.support.hooks import check_function
from sinksdk.transforms.parts import Part, content_of, fields_of, structure, with_content


class Transformation(Protocol):
    """One step of a chain; an author's class is instantiated without arguments.

    Its optional ``configure(config: Mapping[str, str])`` gets the keys of ``transforms.<name>.``, also when a
    configuration is checked, and must do no I/O.
    """

    def apply(self, records: SinkRecords) -> SinkRecords:
        """Return the records, changed or without those to drop. Each is transformed by itself.

        After an exception it is called again with parts of the batch, down to the records that fail.
        RetriableException requests another attempt; ConfigException ends the partition.
        """
        ...


class Predicate(Protocol):
    """Chooses the records to which a transform is applied. Created and configured like a transform."""

    def test(self, records: SinkRecords) -> Sequence[bool]: ...


def check_methods(cls: type, *names: str) -> None:
    for name in names:
        check_function(cls.__qualname__, name, getattr(cls, name, None))


class Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class FieldKeys(Keys):
    replace_null_with_default: bool = Field(
        default=True,
        alias="replace.null.with.default",
        description="No effect: nulls that the converter leaves stay; see its `replace.null.with.default`.",
    )


class BuiltIn(ABC):
    keys_class: ClassVar[type[Keys]] = Keys
    purpose: ClassVar[str] = ""
    """The transform's purpose in error messages, as in Connect."""

    @property
    def needs_fields(self) -> bool:
        """Whether the transform fails for keys or values without fields."""
        return bool(self.purpose)

    def __init__(self, keys: Any, part: Part = "value") -> None:
        self.keys = keys
        self.part: Part = part

    @abstractmethod
    def apply(self, records: SinkRecords) -> SinkRecords: ...

    def expect_dict(self, value: object) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        raise DataException(
            f"only objects with fields can be used for {self.purpose}; the {self.part} is "
            f"{'null' if value is None else 'of type ' + type(value).__name__}"
        )

    def expect_struct(self, column: pa.Array, *, may_be_null: bool = False) -> pa.Array:
        if pa.types.is_struct(column.type) and (may_be_null or not column.null_count):
            return column
        found = "null" if pa.types.is_struct(column.type) else f"of type {column.type}"
        raise DataException(f"only structures can be used for {self.purpose}; the {self.part} is {found}")


class OfOnePart(BuiltIn):
    def apply(self, records: SinkRecords) -> SinkRecords:
        content = content_of(records, self.part)
        if isinstance(content, pa.Array):
            return with_content(records, self.part, self.typed(content))
        return with_content(records, self.part, [self.plain(value) for value in content])

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """Transform a Python object by Connect's rules for values without a schema."""

    @abstractmethod
    def typed(self, column: pa.Array) -> pa.Array:
        """Transform an Arrow column by Connect's rules for values with a schema."""


def field_of(column: pa.Array, name: str) -> pa.Array:
    for found, content in fields_of(column):
        if found == name:
            return content
    raise DataException(f"there is no field '{name}'")


def rebuilt(columns: Sequence[tuple[str, pa.Array]], like: pa.Array) -> pa.Array:
    names = [name for name, _ in columns]
    if len(set(names)) < len(names):
        if like.null_count == len(like):
            return like  # not a structure, so it has no duplicate fields
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataException(f"two fields would have the name {', '.join(twice)}")
    return structure([column for _, column in columns], names, like)
