"""KIP-618's round of fencing before a source's tasks start: earlier tasks can write nothing more."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence

from sinksdk.engine.clock import WallClock
from sinksdk.engine.writer import Target, fence, fencing_round
from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.runtime.backoff import Backoff
from sinksdk.runtime.session import DriverSession
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)

Wait = Callable[[Callable[[], float]], bool]
"""Waits as long as seconds are left; False if the driver must end meanwhile."""


class ZombieFencing:
    """Fences earlier tasks before a driver starts new ones."""

    def __init__(self, session: DriverSession, config: SourceConnectorConfig, target: Target) -> None:
        self._session = session
        self._config = config
        self._target = target
        self._backoff = Backoff.of_restarts(config, session.clock, session.environment.jitter)

    def fence(
        self, claim: Claim, record: ConnectorRecord, configs: Sequence[Mapping[str, str]], wait: Wait
    ) -> bool:
        """Fence earlier tasks; until that is done nothing is planned.

        Args:
            wait: called between two attempts.

        Returns:
            False if the driver must end meanwhile.

        Raises:
            ConnectException: fencing failed too often.
        """
        round_ = fencing_round(
            is_pending=_is_pending(claim, record, configs),
            recorded=claim.transactional_tasks,
            tasks=len(configs),
        )
        for attempt in itertools.count(1):
            problem = self._try_to_fence(round_.fence)
            if problem is None:
                break
            if attempt > self._config.restart_max_attempts and not isinstance(problem, RetriableException):
                raise problem
            delay = self._backoff.delay(attempt)
            log.warning(
                "connector %s: the tasks before could not be fenced, none is started; tried again in %.1f s: "
                "%s",
                self._config.name,
                delay,
                problem,
            )
            if not wait(countdown(self._session.clock, delay)):
                return False
        return not self._session.is_unwanted()

    def _try_to_fence(self, tasks: range) -> ConnectException | None:
        """The error; None also if the driver must end meanwhile."""
        for task in tasks:
            self._session.expect_newest()  # the tasks of a newer driver have the same transactional ids
            if self._session.is_unwanted():
                return None
            try:
                fence(self._target, self._config, task)
            except ConfigException:
                raise
            except ConnectException as error:
                return error
        return None


def _is_pending(claim: Claim, record: ConnectorRecord, configs: Sequence[Mapping[str, str]]) -> bool:
    """Whether tasks are about to start that differ from those of the last record.

    Unchanged tasks fence their own predecessors.
    """
    before = claim.before
    if before is None or claim.transactional_tasks != len(before.tasks):
        return True
    return before.config != record.config or [task.config for task in before.tasks] != list(configs)


def countdown(clock: WallClock, seconds: float) -> Callable[[], float]:
    """Returns a function that gives the remaining seconds."""
    end = clock.now() + seconds
    return lambda: end - clock.now()
