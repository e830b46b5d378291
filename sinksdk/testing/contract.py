"""Declare a sink's promise; the errors of both kits."""

from __future__ import annotations

import difflib
import functools
import gc
import inspect
import itertools
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from inspect import get_annotations
from operator import methodcaller
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from sinksdk.config import ConnectorConfig
from sinksdk.engine import EngineOptions
from sinksdk.engine.retry import RetryPolicy
from sinksdk.offsets import TopicPartition
from sinksdk.records import SinkRecord
from sinksdk.task import SinkTask
from sinksdk.testing.doubles import MemoryDestination
from sinksdk.testing.faults import COMMIT_LOG, DESTINATION, ORIGIN, TASK, TOPICS, FaultPlan

D = TypeVar("D")

Row = tuple[Any, ...]

ReadBack = Callable[[D], Iterable[Row] | Mapping[Any, Any]]

Step = tuple[Any, ...]


def nth(at: int) -> str:
    number = at + 1
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


_OPERATIONS: Final = {
    DESTINATION: "operation of the destination",
    COMMIT_LOG: "write of the commit log",
    TOPICS: "operation of the topics",
    ORIGIN: "operation of the origin",
    TASK: "call of the task",
}


def upcoming(at: int, where: str) -> str:
    what = _OPERATIONS.get(where, where)
    return f"{nth(at)} {what} from now" if at else f"next {what}"


class Guarantee(StrEnum):
    """How often readers see a record, whatever fails."""

    AT_LEAST_ONCE = "at least once"
    """At least once when the record is committed; at most as often as it was put."""
    EFFECTIVELY_ONCE = "effectively once"
    """Once, but maybe before the record is committed: idempotent writes."""
    EXACTLY_ONCE = "exactly once"
    """Once, and never before the record is committed: two phases."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The promises of a sink, in addition to losing no record.

    Args:
        guarantee: how often readers see a record.
        ordered: records of a partition are read back in the order of their offsets.
        buffers: a periodic commit may keep records back; False: it commits everything that was put.
        dead_letters: the sink reports records that it cannot deliver, and continues. The kit puts such
            records only if this is declared.
        commits_on_close: a closing commit keeps nothing back. False: the tail is read again.
        fences_zombies: a zombie of a replaced task changes nothing. False: the destination cannot tell it
            from its successor (no transactions, no conditional writes); the kit then runs no zombies, and the
            guarantee holds only while none runs, which the report says.
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    ordered: bool = False
    buffers: bool = True
    dead_letters: bool = False
    commits_on_close: bool = True
    fences_zombies: bool = True


class KitError(Exception):
    """The kit is used in a way that would let every connector pass; the message says what to change."""


F = TypeVar("F", bound=Callable[..., Any])


# The signature of the decorated function, and its errors, name the options one by one.
def spelling_out(options: type, subject: type) -> Callable[[F], F]:
    defaults = {
        option.name: option.default if option.default_factory is MISSING else option.default_factory()
        for option in fields(subject)
    }

    def decorated(function: F) -> F:
        written = inspect.signature(function)
        known = [name for name in written.parameters if name != "options"]

        @functools.wraps(function)
        def spelt_out(*arguments: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            for name in named.keys() - {*known, *get_annotations(options)}:
                every = [*known, *get_annotations(options)]
                nearest = difflib.get_close_matches(name, every, n=1)
                hint = f"did you mean '{nearest[0]}'?" if nearest else f"the options are {', '.join(every)}"
                raise TypeError(f"{function.__name__}() has no option '{name}'; {hint}")
            return function(*arguments, **named)

        shown = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
            for name, kind in get_annotations(options).items()
        ]
        kept = [parameter for name, parameter in written.parameters.items() if name != "options"]
        spelt_out.__signature__ = written.replace(parameters=[*kept, *shown])  # type: ignore[attr-defined]  # of inspect
        return cast("F", spelt_out)

    return decorated


class ContractError(AssertionError):
    """A connector broke its promise.

    Args:
        story: the events until then, in sentences.
        steps: the same steps, as arguments of the function that :attr:`replayed_by` names.
    """

    replayed_by: ClassVar[str] = "replay"

    def __init__(self, problem: str, story: Sequence[str], steps: Sequence[Step]) -> None:
        self.problem = problem
        self.story = tuple(story)
        self.steps = tuple(steps)
        super().__init__(f"{problem}\n{self.story_text(story, steps)}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problem, self.story, self.steps)

    @classmethod
    def story_text(cls, story: Sequence[str], steps: Sequence[Step]) -> str:
        """Return the story as text, with the call that replays it."""
        lines = [f"{number:>3}. {sentence}" for number, sentence in enumerate(story, 1)]
        replay = f"{cls.replayed_by}([{', '.join(map(repr, steps))}], …)"
        return "\n".join(["", "What happened:", *lines, "", "To replay it:", f"    {replay}"])


class SinkContractError(ContractError):
    """The sink broke its promise; :func:`~sinksdk.testing.replay` runs its steps again."""


class SourceContractError(ContractError):
    """The source broke its promise; :func:`~sinksdk.testing.replay_source` runs its steps again."""

    replayed_by = "replay_source"


# As the __tracebackhide__ of a module, this function lets pytest hide the kit's frames in these errors.
HIDDEN: Callable[[Any], bool] = methodcaller("errisinstance", (KitError, ContractError))

PARTITIONS = (TopicPartition("records", 0), TopicPartition("records", 1), TopicPartition("others", 0))

POISON = b"\xff is no JSON"


def json_record(partition: TopicPartition, offset: int) -> SinkRecord:
    """Return a record whose value is a JSON object of its coordinates; some records lack value, key, or both.

    Some keys repeat across partitions.
    """
    topic, number = partition
    key = f"key {offset % 2}{f' of {partition}' if offset % 3 else ''}"
    value = json.dumps({"topic": topic, "partition": number, "offset": offset}).encode()
    return SinkRecord(
        topic,
        number,
        offset,
        None if offset % 3 == 2 else key.encode(),  # noqa: PLR2004 - some, as good as any
        None if offset % 4 == 1 else value,
        1_700_000_000_000 + offset,
    )


_BYTES: Final = (b"", b"%d", None, b"\n", b"\x00\xff")


def bytes_record(partition: TopicPartition, offset: int) -> SinkRecord:
    """Return a record of bytes: in turn an empty value, a number, null, a newline, and no valid text.

    Some keys are empty or null.
    """
    value = _BYTES[offset % len(_BYTES)]
    key = (b"", None, b"key %d" % offset)[offset % 3]
    number = value if value is None or b"%" not in value else value % offset
    return SinkRecord(*partition, offset, key, number, 1_700_000_000_000 + offset)


def key_and_value(record: SinkRecord) -> tuple[Any, Any]:
    return record.key, record.value


def keep(_: Any) -> None: ...


@dataclass(frozen=True)
class Subject(Generic[D]):
    make_task: Callable[[D], SinkTask]
    read_back: ReadBack[D]
    destination: Callable[[FaultPlan], D] = MemoryDestination  # type: ignore[assignment]  # D is it then
    config: Any = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    partitions: Sequence[TopicPartition] = PARTITIONS
    record: Callable[[TopicPartition, int], SinkRecord] = json_record
    poison: bytes | Sequence[bytes] = POISON
    leftovers: Callable[[D], Iterable[str]] | None = None
    clean_up: Callable[[D], object] = keep
    steps: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    transforms: bool = True
    row: Callable[[SinkRecord], tuple[Any, Any] | None] = key_and_value
    alter: Callable[[D, TopicPartition, int | None], object] | None = None

    @property
    def poisons(self) -> Sequence[bytes]:
        return (self.poison,) if isinstance(self.poison, bytes) else tuple(self.poison)

    def leftovers_of(self, destination: D) -> list[str] | None:
        if self.leftovers is not None:
            return list(self.leftovers(destination))
        own: Callable[[], Iterable[str]] | None = getattr(destination, "leftovers", None)
        return list(own()) if callable(own) else None

    def config_for(self, destination: D) -> Any:
        return self.config(destination) if callable(self.config) else self.config

    def options(self, config: Any, *, is_transformed: bool = False) -> EngineOptions:
        configured = isinstance(config, ConnectorConfig)
        # Two seconds of retries on the manual clock, if there is no configuration.
        options = EngineOptions.of(config) if configured else EngineOptions(retry=RetryPolicy(2.0, 1.0))
        if configured and self.capabilities.dead_letters and _refuses_bad_records(config):
            raise KitError(
                "errors.tolerance=none contradicts dead_letters=True, which the kit checks with records that "
                "cannot be delivered: remove errors.tolerance from `config`, or set it to all"
            )
        return replace(
            options,
            tolerate_errors=options.tolerate_errors or self.capabilities.dead_letters,
            context_headers=True,  # the headers of dead letters name the cause for the kit's messages
            is_transformed=options.is_transformed or is_transformed,
        )


def _refuses_bad_records(config: ConnectorConfig) -> bool:
    return config.errors_tolerance == "none" and "errors_tolerance" in config.model_fields_set


def evenly(schedules: Sequence[Sequence[Step]], most: int) -> list[Sequence[Step]]:
    count = min(most, len(schedules))
    return [schedules[number * len(schedules) // count] for number in range(count)]


def fairly(kinds: Sequence[Sequence[Sequence[Step]]], most: int) -> list[Sequence[Step]]:
    chosen: list[Sequence[Step]] = []
    for number, schedules in enumerate(sorted(kinds, key=len)):
        chosen += evenly(schedules, (most - len(chosen)) // (len(kinds) - number))
    return chosen


E = TypeVar("E", bound=ContractError)

_MOST_REPLAYS = 2_000


def shorten(failure: E, run: Callable[[Sequence[Step]], E | None]) -> E:
    # The result is minimal unless the number of replays ran out: no step can be left out or made smaller.
    replays_left = _MOST_REPLAYS
    simpler: E | None = failure
    while simpler is not None:
        failure, simpler = simpler, None
        for candidate in itertools.islice(_simpler(failure.steps), replays_left):
            replays_left -= 1
            simpler = run(candidate)
            if simpler is not None:
                break
    return failure


def _simpler(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    size = len(steps) // 2
    while size:
        for start in range(len(steps) - size, -1, -size):
            yield [*steps[:start], *steps[start + size :]]
        size //= 2
    for at, (name, *arguments) in enumerate(steps):
        for place, argument in enumerate(arguments):
            for smaller in _smaller(argument) if isinstance(argument, int) else ():
                if smaller or name not in ("deliver", "zombie_deliver", "skip", "read_range") or not place:
                    changed = [*arguments[:place], smaller, *arguments[place + 1 :]]
                    yield [*steps[:at], (name, *changed), *steps[at + 1 :]]


def _smaller(number: int) -> list[int]:
    return sorted({candidate for candidate in (0, 1, number // 2, number - 1) if 0 <= candidate < number})


@contextmanager
def quiet() -> Iterator[None]:
    # Injected faults are logged, and a crash closes nothing.
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                yield
            finally:
                gc.collect()  # a coroutine that was never awaited raises its warning here
    finally:
        logging.disable(before)
