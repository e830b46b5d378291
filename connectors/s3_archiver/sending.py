"""Sending what several partitions have sealed: in rounds, so that none waits for another's trouble."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sinksdk import FencedException, RetriableException, TopicPartition
from sinksdk.connectors.s3_archiver.upload import Upload
from sinksdk.connectors.s3_archiver.writer import PartitionWriter

log = logging.getLogger(__name__)

Note = Callable[[Mapping[TopicPartition, Sequence[Upload]]], None]
"""Notes the tokens of created uploads durably, in one write."""

_LONGEST_DELAY = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """How long requests that fail passingly are made again.

    Args:
        budget: seconds after which no further round begins.
        first_delay: seconds before the second round; doubles with each.
        clock: seconds that pass.
        sleep: lets them pass.
    """

    budget: float
    first_delay: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Sending:
    """One commit's sending.

    Args:
        note: see :data:`Note`.
        patience: how long it is tried.
        is_closing: end open files too, not only those that are due.
    """

    note: Note
    patience: Patience
    is_closing: bool

    def send(self, writers: Mapping[TopicPartition, PartitionWriter]) -> dict[TopicPartition, Exception]:
        """Send everything sealed. All are tried in each round, the troubled ones again in the next.

        Returns:
            The partitions that could not be sent, each with the reason.

        Raises:
            FencedException: somebody newer owns these partitions.
        """
        patience = self.patience
        failures: dict[TopicPartition, Exception] = {}
        waiting = dict(writers)
        give_up_at = patience.clock() + patience.budget
        delay = patience.first_delay
        while True:
            problems = self._round(waiting)
            passing = {p: error for p, error in problems.items() if isinstance(error, RetriableException)}
            if not passing or patience.clock() + delay > give_up_at:
                return failures | problems
            failures.update((p, error) for p, error in problems.items() if p not in passing)
            for partition, error in passing.items():
                log.info("%s: %s; tried again in %.1f s", partition, error, delay)
            patience.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
            waiting = {partition: writers[partition] for partition in passing}

    def _round(self, writers: Mapping[TopicPartition, PartitionWriter]) -> dict[TopicPartition, Exception]:
        """Create what is not created, note all of it in one write, send it."""
        problems: dict[TopicPartition, Exception] = {}
        created: dict[TopicPartition, Sequence[Upload]] = {}
        for partition, writer in writers.items():
            with _reported(partition, problems):
                created[partition] = writer.prepare(is_closing=self.is_closing)
        new = {partition: uploads for partition, uploads in created.items() if uploads}
        if new:
            self.note(new)
        for partition in created:
            with _reported(partition, problems):
                writers[partition].send()
        return problems


@contextmanager
def _reported(partition: TopicPartition, problems: dict[TopicPartition, Exception]) -> Iterator[None]:
    """Note what is raised inside: one partition's failure must not cost the others."""
    try:
        yield
    except FencedException:
        raise
    except Exception as error:  # noqa: BLE001 - reported for the one partition it concerns
        problems[partition] = error
