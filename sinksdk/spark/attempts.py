"""What any attempt at a task does on an executor, a sink's or a source's.

An attempt that finds itself fenced must not end well: Spark would take it for the winner and kill the
copy that owns the task. It waits until it is killed or its generation is over, and then fails.
"""

from __future__ import annotations

import logging
import resource
import sys

from sinksdk.engine.clock import Clock
from sinksdk.errors import FencedException
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.store import Store, asked_to_close, is_current, open_store, table
from sinksdk.store.keys import progress_key, task_key
from sinksdk.store.records import TaskRecord
from sinksdk.support.logs import configure_logging, logging_about

log = logging.getLogger(__name__)

_FENCED_POLL = 1.0  # seconds
_OWNER_SILENCE = 600.0  # seconds: longer than any call of an author's code should take


def settle_in(spec: GenerationSpec) -> None:
    """Make this process import and log as the driver does."""
    sys.path[:0] = [folder for folder in spec.python_path if folder not in sys.path]
    configure_logging(spec.logs)


def opened_store(spec: GenerationSpec) -> Store:
    """The driver's store. What is logged meanwhile is about the connector: of several in a process, which.

    Raises:
        ConfigException: it cannot be opened, or is another one.
        StoreUnavailable: no answer.
    """
    with logging_about(connector=spec.connector, generation=spec.generation):
        return open_store(spec.store_url, expected_id=spec.store_id)


def peak_memory() -> int:
    """Largest resident size of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fenced(store: Store, spec: GenerationSpec, task: int, clock: Clock) -> FencedException:
    """Wait until there is something to raise: this attempt is needed no more, or its owner is dead.

    Spark kills this attempt once the owner has reported. An owner that died with its executor reports
    nothing, and Spark may start no third attempt while this one runs: so the owner's signs of life are
    watched.
    """
    log.info(
        "connector %s, task %d, generation %d: another attempt owns this task; waiting for the end",
        spec.connector,
        task,
        spec.generation,
    )
    signs, since = _signs_of_life(store, spec, task), clock.now()
    while (is_newest := is_current(store, spec.connector, spec.generation)) and not asked_to_close(
        store, spec.connector, spec.generation
    ):
        clock.sleep(_FENCED_POLL)
        now = _signs_of_life(store, spec, task)
        if now != signs:
            signs, since = now, clock.now()
        if clock.now() - since > _OWNER_SILENCE:
            return FencedException(
                f"connector {spec.connector}, task {task}: the attempt that owns it has given no sign of "
                f"life for {_OWNER_SILENCE:g} s; a new one may start"
            )
    why = "is closing" if is_newest else "is over; a newer one has taken over"
    return FencedException(f"connector {spec.connector}, task {task}: generation {spec.generation} {why}")


def _signs_of_life(store: Store, spec: GenerationSpec, task: int) -> tuple[str | None, ...]:
    """Versions of what a task's owner writes while it lives."""
    keys = (task_key(spec.connector, task), progress_key(spec.connector, task))
    return tuple(map(store.version, keys))


def leaves_closing_alone(store: Store, spec: GenerationSpec, task: int, clock: Clock) -> bool:
    """Whether another attempt has the task that is to close; a copy of it waits for as long as that may take.

    Taking its record over would throw away what it is about to commit. Spark kills a copy once the other
    one has reported. Without speculation there are no copies: Spark has given the other one up, and
    nobody waits for it.
    """
    if not is_current(store, spec.connector, spec.generation):
        return False
    closing = asked_to_close(store, spec.connector, spec.generation)
    if closing is None:
        return False
    record = table.read(store, task_key(spec.connector, task), TaskRecord)
    if record is None or record.value.generation != spec.generation or not record.value.attempt:
        return False
    give_up = clock.now() + (closing.timeout if spec.speculates else 0.0)
    while clock.now() < give_up and is_current(store, spec.connector, spec.generation):
        clock.sleep(_FENCED_POLL)
    return True
