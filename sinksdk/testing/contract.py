"""What an author declares of a sink, and what the kit says when it is not so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from sinksdk.config import ConnectorConfig
from sinksdk.engine import EngineOptions
from sinksdk.engine.retry import RetryPolicy
from sinksdk.records import SinkRecord, TopicPartition
from sinksdk.task import SinkTask
from sinksdk.testing.destination import MemoryDestination
from sinksdk.testing.faults import FaultPlan

D = TypeVar("D")

Row = tuple[Any, ...]
"""What ``read_back`` says of one record: topic, partition, offset and, if it likes, the value."""

Step = tuple[Any, ...]
"""One step of a schedule: its name and its arguments, as ``("deliver", 0, 2)``."""


class Guarantee(StrEnum):
    """How often readers see a record, whatever happens."""

    AT_LEAST_ONCE = "at least once"
    """At least once when it is committed; at most as often as it was put."""
    EFFECTIVELY_ONCE = "effectively once"
    """Once, but maybe before it is committed: idempotent writes."""
    EXACTLY_ONCE = "exactly once"
    """Once, and never before it is committed: two phases."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a sink promises besides losing nothing.

    Args:
        guarantee: how often readers see a record.
        ordered: a partition's records are read back in the order of their offsets.
        buffers: a periodic commit may keep records back; False: it commits everything that was put.
        dead_letters: what it cannot deliver it reports, and goes on. Needed to be sent such records.
        commits_on_close: a closing commit keeps nothing back. False: the tail is read again.
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    ordered: bool = False
    buffers: bool = True
    dead_letters: bool = False
    commits_on_close: bool = True


class KitError(Exception):
    """The kit cannot judge: it is used in a way that would make every connector pass. Says what to do."""


class ContractError(AssertionError):
    """A connector broke its promise.

    Args:
        story: what happened until then, sentence by sentence.
        steps: the same, to be replayed.
    """

    replayed_by: ClassVar[str] = "replay"
    """Name of the function that does the steps again."""

    def __init__(self, problem: str, story: Sequence[str], steps: Sequence[Step]) -> None:
        self.problem = problem
        self.story = tuple(story)
        self.steps = tuple(steps)
        lines = [f"{number:>3}. {sentence}" for number, sentence in enumerate(story, 1)]
        again = f"{self.replayed_by}([{', '.join(map(repr, steps))}], …)"
        super().__init__(
            "\n".join([problem, "", "What happened:", *lines, "", "The same again:", f"    {again}"])
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problem, self.story, self.steps)


class SinkContractError(ContractError):
    """The sink broke its promise. Its steps are for :func:`~sinksdk.testing.replay`."""


class SourceContractError(ContractError):
    """The source broke its promise. Its steps are for :func:`~sinksdk.testing.replay_source`."""

    replayed_by = "replay_source"


PARTITIONS = (TopicPartition("records", 0), TopicPartition("records", 1), TopicPartition("others", 0))
"""Some may be revoked while others are kept; and a number alone says not which partition it is."""

POISON = b"\xff is no JSON"
"""Value of a record that cannot be delivered."""


def json_record(partition: TopicPartition, offset: int) -> SinkRecord:
    """A record whose value is a JSON object of its coordinates; now and then without value, key, or both.

    Keys come back, within a partition and in others, as in any topic.
    """
    topic, number = partition
    value = json.dumps({"topic": topic, "partition": number, "offset": offset}).encode()
    return SinkRecord(
        topic,
        number,
        offset,
        None if offset % 3 == 2 else f"key {offset % 2}".encode(),  # noqa: PLR2004 - some, as good as any
        None if offset % 4 == 1 else value,
        1_700_000_000_000 + offset,
    )


def no_leftovers(destination: Any) -> Iterable[str]:
    """Ask the destination, if it can tell."""
    ask: Callable[[], Iterable[str]] | None = getattr(destination, "leftovers", None)
    return ask() if callable(ask) else ()


def keep(_: Any) -> None:
    """Leave the destination to itself."""


@dataclass(frozen=True)
class Subject(Generic[D]):
    """A sink under test, and how to look at what it did. See :func:`~sinksdk.testing.check_sink`."""

    make_task: Callable[[D], SinkTask]
    read_back: Callable[[D], Iterable[Row]]
    destination: Callable[[FaultPlan], D] = MemoryDestination  # type: ignore[assignment]  # D is it then
    config: Any = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    partitions: Sequence[TopicPartition] = PARTITIONS
    record: Callable[[TopicPartition, int], SinkRecord] = json_record
    poison: bytes = POISON
    leftovers: Callable[[D], Iterable[str]] = no_leftovers
    clean_up: Callable[[D], object] = keep
    steps: Mapping[str, Callable[..., object]] = field(default_factory=dict)

    def tells_leftovers(self, destination: D) -> bool:
        """Whether there is a way to see what is left over at a destination."""
        return self.leftovers is not no_leftovers or callable(getattr(destination, "leftovers", None))

    def config_for(self, destination: D) -> Any:
        """The configuration of a case: ``config``, or what it makes of the destination."""
        is_maker = callable(self.config) and not isinstance(self.config, ConnectorConfig)
        return self.config(destination) if is_maker else self.config

    def options(self, config: Any) -> EngineOptions:
        """How the engine behaves: as configured, and patient for two seconds where nothing is."""
        configured = isinstance(config, ConnectorConfig)
        options = EngineOptions.of(config) if configured else EngineOptions(retry=RetryPolicy(2.0, 1.0))
        return replace(options, tolerate_errors=True) if self.capabilities.dead_letters else options
