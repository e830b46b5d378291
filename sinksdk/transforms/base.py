"""What transforms and predicates are."""

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
    """One step of a chain. An author's is made without arguments.

    If it has a method ``configure(config: Mapping[str, str])``, that is called once with the keys of
    ``transforms.<name>.`` (less ``type``, ``predicate`` and ``negate``), and raises ConfigException for those
    it cannot work with; without one it has no keys. It is also called where a configuration is
    checked, and must do no I/O.
    """

    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records changed, or fewer of them. Each is judged by itself.

        If it raises, it is called again with parts of the batch, down to the records that fail: those
        are treated as ``errors.tolerance`` says. RetriableException requests another attempt at all of
        them, ConfigException ends the partition.
        """
        ...


class Predicate(Protocol):
    """Chooses the records that a transform is applied to. It is made and configured as a transform is."""

    def test(self, records: SinkRecords) -> Sequence[bool]:
        """For each record whether it is chosen. What it raises is treated as what a transform raises."""
        ...


def check_methods(cls: type, *names: str) -> None:
    """Refuse an author's class whose methods are coroutines or generators. Raises HookError."""
    for name in names:
        check_function(cls.__qualname__, name, getattr(cls, name, None))


class Keys(BaseModel):
    """The keys of a transform or predicate of Kafka's own. Unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class FieldKeys(Keys):
    """Those of transforms that look at fields."""

    replace_null_with_default: bool = Field(
        default=True,
        alias="replace.null.with.default",
        description="No effect: nulls that the converter has left stay, see its `replace.null.with.default`.",
    )


class BuiltIn(ABC):
    """A transform of Kafka's own.

    Args:
        keys: what it is configured with.
        part: whether it is the one for keys or for values, if it is one of two.
    """

    keys_class: ClassVar[type[Keys]] = Keys
    purpose: ClassVar[str] = ""
    """What an error message calls it, in Connect's words."""

    @property
    def needs_fields(self) -> bool:
        """Whether it fails at keys or values without fields."""
        return bool(self.purpose)

    def __init__(self, keys: Any, part: Part = "value") -> None:
        self.keys = keys
        self.part: Part = part

    @abstractmethod
    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records, changed."""

    def expect_dict(self, value: object) -> dict[str, Any]:
        """The value, if it has fields. Raises DataException, in which it is not quoted."""
        if isinstance(value, dict):
            return value
        raise DataException(
            f"only objects with fields can be used for {self.purpose}; the {self.part} is "
            f"{'null' if value is None else 'of type ' + type(value).__name__}"
        )

    def expect_struct(self, column: pa.Array, *, may_be_null: bool = False) -> pa.Array:
        """The column, if it is one of structures, none of which is null. Raises DataException."""
        if pa.types.is_struct(column.type) and (may_be_null or not column.null_count):
            return column
        found = "null" if pa.types.is_struct(column.type) else f"of type {column.type}"
        raise DataException(f"only structures can be used for {self.purpose}; the {self.part} is {found}")


class OfOnePart(BuiltIn):
    """A transform that makes a key of a key, or a value of a value."""

    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records with other keys or values."""
        content = content_of(records, self.part)
        if isinstance(content, pa.Array):
            return with_content(records, self.part, self.typed(content))
        return with_content(records, self.part, [self.plain(value) for value in content])

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """Of a Python object. Connect's rules for values without a schema."""

    @abstractmethod
    def typed(self, column: pa.Array) -> pa.Array:
        """Of an Arrow column. Connect's rules for values with a schema, column by column."""


def field_of(column: pa.Array, name: str) -> pa.Array:
    """One field of structures. Raises DataException where they do not have it."""
    for found, content in fields_of(column):
        if found == name:
            return content
    raise DataException(f"there is no field '{name}'")


def rebuilt(columns: Sequence[tuple[str, pa.Array]], like: pa.Array) -> pa.Array:
    """Structures of these fields, null where those of ``like`` are.

    Raises:
        DataException: two of them have one name.
    """
    names = [name for name, _ in columns]
    if len(set(names)) < len(names):
        if like.null_count == len(like):
            return like  # nothing has two fields of one name
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataException(f"there would be two fields of the name {', '.join(twice)}")
    return structure([column for _, column in columns], names, like)
