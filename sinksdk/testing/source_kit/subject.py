"""Declare a source's promise and the expected content of its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from sinksdk.engine.options import SourceOptions as EngineOptions
from sinksdk.engine.retry import RetryPolicy
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.records import SourceRecord
from sinksdk.source.task import SourceTask
from sinksdk.testing.contract import KitError, keep
from sinksdk.testing.doubles import MemoryOrigin
from sinksdk.testing.faults import FaultPlan

Boundary: TypeAlias = Literal["poll", "interval", "connector"]

Expected: TypeAlias = bytes | tuple[Any, ...] | None

# The last value of each key, by key, or by topic and key; None: the row is deleted.
Rows: TypeAlias = Mapping[Any, bytes | None]

Truth: TypeAlias = Sequence[Expected] | Rows

MOST_TASKS: Final = 3


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    """The promises of a source, in addition to losing no record and leaving nothing open.

    Args:
        exactly_once: from an offset on the source delivers the same records again, so that none is seen
            twice.
        ordered: records of one source partition come in the order of ``expected``.
        grows: the offsets of a source partition never go back. True: an offset that was left never comes
            again, and if only numbers of it change, not all of them fall; texts are not compared. Names of
            the offset's fields, ``("updated_at", "id")``: these are compared as a tuple, numbers by size and
            texts by their characters; other fields are not compared. False: nothing is compared.
        boundaries: where its transactions may end; ``("connector",)`` for tasks that define transactions.
    """

    exactly_once: bool = True
    ordered: bool = True
    grows: bool | Sequence[str] = True
    boundaries: Sequence[Boundary] = ("poll", "interval")


@dataclass(frozen=True)
class SourceSubject:
    make_task: Callable[[Any], SourceTask]
    expected: Truth | Callable[[Any], Iterable[Expected] | Rows]
    origin: Callable[[FaultPlan], Any] = MemoryOrigin
    config: Any = None
    task_configs: Callable[[Any, int], Sequence[Any]] | None = None
    capabilities: SourceCapabilities = field(default_factory=SourceCapabilities)
    changes: Sequence[Callable[[Any], object]] = ()
    clean_up: Callable[[Any], object] = keep
    patience: float = 2.0
    # Attributes of the task's classes that have changed while a task ran.
    shared: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if isinstance(self.expected, Iterator):
            problem = (  # type: ignore[unreachable]  # an author's generator
                "`expected` can be read only once: pass a list, a mapping, or a function of the origin that "
                "returns one"
            )
            raise KitError(problem)
        if not isinstance(self.changes, Sequence) or not all(map(callable, self.changes)):
            raise KitError("`changes` must be a list of functions of the origin, as in changes=[more]")
        if self.task_configs is not None and self.config is not None:
            raise KitError(
                "`config` and `task_configs` are both set, and both give the argument of `start`: remove one "
                "of them"
            )
        grows = self.capabilities.grows
        if isinstance(grows, str):
            raise KitError(f"`grows` must be a list of names of the offset's fields, as in grows=[{grows!r}]")

    @property
    def most_tasks(self) -> int:
        return 1 if self.task_configs is None else MOST_TASKS

    def configs(self, origin: Any, tasks: int) -> Sequence[Any]:
        if self.task_configs is None:
            return [self.config(origin) if callable(self.config) else self.config]
        configs = self.task_configs(origin, tasks)
        if len(configs) > tasks:
            raise KitError(
                f"task_configs returned {len(configs)} configurations for {tasks} tasks; return at most "
                f"{tasks}"
            )
        return configs

    def options(self, config: Any, boundary: Boundary) -> EngineOptions:
        configured = isinstance(config, SourceConnectorConfig)
        options = EngineOptions.of(config) if configured else EngineOptions(retry=RetryPolicy(2.0, 1.0))
        return replace(options, boundary=boundary)

    def truth(self, origin: Any) -> list[Expected] | Rows:
        expected = self.expected(origin) if callable(self.expected) else self.expected
        rows = expected if isinstance(expected, Mapping) else list(expected)
        if not rows:
            raise KitError(
                "`expected` is empty: name every record that the source holds, as values, as (topic, value), "
                "as (topic, key, value) or as a mapping of value by key; without it every source would pass"
            )
        return rows


def shape_of(truth: Sequence[Expected]) -> Callable[[SourceRecord], Expected]:
    sizes = {len(row) if isinstance(row, tuple) else 1 for row in truth}
    match sorted(sizes):
        case [1] if not isinstance(truth[0], tuple):
            return lambda record: record.value
        case [2]:
            return lambda record: (record.topic, record.value)
        case [3]:
            return lambda record: (record.topic, record.key, record.value)
    raise KitError(
        f"`expected` contains {truth[0]!r}: write all records as values, as (topic, value) or as (topic, "
        f"key, value)"
    )


def key_of(truth: Rows) -> Callable[[SourceRecord], Any]:
    kinds = {isinstance(key, tuple) for key in truth}
    if kinds == {False}:
        return lambda record: record.key
    if kinds == {True} and {len(key) for key in truth} == {2}:
        return lambda record: (record.topic, record.key)
    raise KitError(
        f"`expected` has the key {next(iter(truth))!r}: write all keys as the record's key, or all as "
        f"(topic, key)"
    )
