"""An attempt takes over the record of its task and runs it; a fenced one waits."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from sinksdk.connector import SinkConnector
from sinksdk.engine import TaskName
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.errors import FencedException
from sinksdk.plugins.classes import sink_of, source_class
from sinksdk.source import SourceConnector
from sinksdk.store import Store, TakenOver, closing_request, is_current, newest_attempt, open_store, take_over
from sinksdk.store.keys import progress_key, task_key
from sinksdk.store.records import TaskPlan
from sinksdk.support.logs import configure_logging, logging_about
from sinksdk.worker.generation_spec import GenerationSpec

log = logging.getLogger(__name__)

_FENCED_POLL: Final = 1.0  # seconds
_OWNER_SILENCE: Final = 600.0  # seconds: longer than any call of an author's code should take

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Attempt:
    spec: GenerationSpec
    store: Store
    task: int
    taken: TakenOver
    clock: WallClock

    @property
    def number(self) -> int:
        return self.taken.ledger.attempt

    @property
    def name(self) -> TaskName:
        return TaskName(self.spec.connector, self.task)

    @property
    def plan(self) -> TaskPlan:
        return self.taken.plan.tasks[self.task]

    @property
    def raw(self) -> Mapping[str, str]:
        return {**self.taken.plan.config, **self.plan.config}

    def sink_class(self) -> type[SinkConnector]:
        return sink_of(self.raw)

    def source_class(self) -> type[SourceConnector]:
        return source_class(self.raw.get("connector.class", ""))

    def ahead(self) -> float:
        """Return wall-clock time minus monotonic time, in seconds."""
        return self.clock.time() - self.clock.now()

    def closing_poll(self, configured_ms: int | None) -> float:
        """Return the seconds between two checks for a close request."""
        return self.store.closing_poll if configured_ms is None else configured_ms / 1000

    def owns_task(self) -> bool:
        return newest_attempt(self.store, self.spec.connector, self.spec.generation, self.task) == self.number

    def may_run(self) -> bool:
        which = self.spec.connector, self.spec.generation
        return (
            is_current(self.store, *which)
            and closing_request(self.store, *which) is None
            and self.owns_task()
        )


@contextmanager
def prepared_process(spec: GenerationSpec, task: int) -> Iterator[Store]:
    """Make this process import and log as the driver does, and open the driver's store."""
    sys.path[:0] = [folder for folder in spec.python_path if folder not in sys.path]
    configure_logging(spec.logs)
    # A process works for many connectors: log lines name the one whose task runs now.
    with logging_about(connector=spec.connector, task=task, generation=spec.generation):
        yield open_store(spec.store_url, expected_id=spec.store_id)


def run_owned(
    spec: GenerationSpec,
    store: Store,
    task: int,
    work: Callable[[Attempt], R],
    *,
    nothing: R,
    clock: WallClock | None,
) -> R:
    """Take over a task's record and do its work.

    Return ``nothing`` if the generation closes and another attempt already has the task.

    Raises:
        FencedException: another attempt owns the task, and the generation is closing or over.
    """
    clock = clock or SystemWallClock()
    if _leaves_closing_alone(spec, store, task, clock):
        return nothing
    taken = take_over(store, spec.connector, spec.generation, task)
    if taken is None:
        raise _wait_fenced(spec, store, task, clock)
    try:
        return work(Attempt(spec, store, task, taken, clock))
    except FencedException as error:
        raise _wait_fenced(spec, store, task, clock) from error


def _wait_fenced(spec: GenerationSpec, store: Store, task: int, clock: WallClock) -> FencedException:
    # Spark would take a fenced attempt that succeeds for the winner, and kill the copy that owns the task.
    # Once the owner has reported, Spark kills this attempt.
    connector, generation = spec.connector, spec.generation
    log.info(
        "connector %s, task %d, generation %d: another attempt owns this task; waiting until it finishes",
        connector,
        task,
        generation,
    )
    # An owner that died with its executor reports nothing, and Spark may start no third attempt while this
    # one runs: so this one watches the two values that an owner writes.
    keys = task_key(connector, task), progress_key(connector, task)
    versions, since = list(map(store.version, keys)), clock.now()
    while (is_newest := is_current(store, connector, generation)) and not closing_request(
        store, connector, generation
    ):
        clock.sleep(_FENCED_POLL)
        now = list(map(store.version, keys))
        if now != versions:
            versions, since = now, clock.now()
        if clock.now() - since > _OWNER_SILENCE:
            return FencedException(
                f"connector {connector}, task {task}: the attempt that owns it has written nothing for "
                f"{_OWNER_SILENCE:g} s; Spark may start another attempt"
            )
    why = "is closing" if is_newest else "was replaced by a newer one"
    return FencedException(f"connector {connector}, task {task}: generation {generation} {why}")


def _leaves_closing_alone(spec: GenerationSpec, store: Store, task: int, clock: WallClock) -> bool:
    """Wait for another attempt that closes the task; return whether there is one."""
    if not is_current(store, spec.connector, spec.generation):
        return False
    closing = closing_request(store, spec.connector, spec.generation)
    if closing is None:
        return False
    if not newest_attempt(store, spec.connector, spec.generation, task):
        return False
    # Taking over the record would discard the other attempt's next commit; Spark kills a copy once the
    # other one has reported. Without speculation there are no copies: the other attempt is dead.
    deadline = clock.now() + (closing.timeout if spec.speculates else 0.0)
    while clock.now() < deadline and is_current(store, spec.connector, spec.generation):
        clock.sleep(_FENCED_POLL)
    return True
