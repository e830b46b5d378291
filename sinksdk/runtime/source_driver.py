"""The driver of one source: runs its generations until it is stopped."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from sinksdk.context import ClosingReason
from sinksdk.control.progress import Listener
from sinksdk.engine.writer import Target, fence, tasks_to_fence
from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.runtime.backoff import Backoff
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.failures import TaskFailures
from sinksdk.runtime.outcomes import SourceLauncher, source_outcomes, source_progress
from sinksdk.runtime.reporter import SourceReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.supervisor import NoTasks, Rows, Supervisor
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan
from sinksdk.support.logs import logging_about

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class SourceDriver:
    environment: Environment
    _: KW_ONLY
    connector: SourceConnector
    config: SourceConnectorConfig
    raw: Mapping[str, Any]
    target: Target
    launcher: SourceLauncher
    listener: Listener = field(default_factory=Listener)

    def close(self) -> None:
        self.environment.signal.request(ClosingReason.SHUTDOWN)

    def rebalance(self) -> None:
        self.environment.signal.request(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        if until_caught_up:
            raise ConfigException(
                f"connector {self.config.name} is a source, which never catches up because it has no end: "
                f"run it without --until-caught-up, and stop it when it has read enough"
            )
        session = DriverSession(self.environment, self.connector, self.config, self.raw)
        return session.run(SourceSession(session, self).drive)


class SourceSession:
    def __init__(self, session: DriverSession, driver: SourceDriver) -> None:
        config = driver.config
        self._session = session
        self._config = config
        self._target = driver.target
        self._launcher = driver.launcher
        self._backoff = Backoff.of_restarts(config, session.clock, session.environment.jitter)
        self._failures = TaskFailures(config, session.status, self._backoff, session.clock)
        self._reporter = SourceReporter(session, driver.listener)

    def drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        session = self._session
        self._reporter.catch_up()
        while True:
            configs = session.task_configs()
            if not self._fence(claim, record, configs):
                return session.requests.closing()
            plan = session.generations.plan(
                claim,
                [TaskPlan(ranges=(), config=config) for config in configs],
                record.version,
                record.config,
                transactional_tasks=len(configs),
            )
            with logging_about(generation=plan.generation):
                self._run(plan)
            session.yield_to_successor()
            if (problem := self._failures.given_up()) is not None:
                raise problem
            if not self._wait(self._failures.waiting):
                return session.requests.closing()
            claim = session.generations.claim()

    def _fence(self, claim: Claim, record: ConnectorRecord, configs: Sequence[Mapping[str, str]]) -> bool:
        """Fence earlier tasks (KIP-618), so that they write nothing more; False: the driver must end."""
        fenced = tasks_to_fence(
            is_pending=_is_pending(claim, record, configs),
            recorded=claim.transactional_tasks,
            tasks=len(configs),
        )
        for attempt in itertools.count(1):
            problem = self._try_to_fence(fenced)
            if problem is None:
                break
            if attempt > self._config.restart_max_attempts and not isinstance(problem, RetriableException):
                raise problem
            delay = self._backoff.delay(attempt)
            log.warning(
                "connector %s: the previous tasks could not be fenced, so no task is started; retrying in "
                "%.1f s: %s",
                self._config.name,
                delay,
                problem,
            )
            if not self._wait_for(delay):
                return False
        return not self._session.is_unwanted()

    def _try_to_fence(self, tasks: range) -> ConnectException | None:
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

    def _run(self, plan: GenerationPlan) -> None:
        session = self._session
        self._failures.generation_begins()
        self._reporter.planned(plan)
        launcher, idle = self._launcher, NoTasks(session.clock)
        if not plan.tasks:
            launcher = idle
            log.info(
                "connector %s: task_configs returned an empty list; no task runs until the connector "
                "requests new configurations or an operator requests a rebalance",
                session.name,
            )

        def closing(reason: ClosingReason) -> None:
            idle.close()
            self._reporter.closing(plan.generation, reason)

        ended = Supervisor(session, self._reason_to_close, closing).run(launcher, plan)
        if ended is None:
            return
        outcomes = source_outcomes(ended, plan)
        self._reporter.measured(plan.generation, ended.measures, outcomes)
        session.signal.clear()
        self._failures.record(outcomes)
        self._reporter.ended(plan.generation, outcomes)
        self._wait_for(self._failures.away(ended.away))

    def _reason_to_close(self, rows: Rows) -> ClosingReason | None:
        progress = source_progress(rows)
        self._failures.report(progress)
        self._reporter.progress(progress)
        self._session.requests.refresh()
        reason = self._session.requests.closing() or self._carry_out_orders()
        if reason is None and self._failures.is_due():
            reason = ClosingReason.FAILURE
        return reason

    def _carry_out_orders(self) -> ClosingReason | None:
        # A flush closes the generation, which commits a transaction that waits for its interval.
        return self._session.carry_out_orders(restart_failed=self._failures.reset)

    def _wait(self, left: Callable[[], float]) -> bool:
        session = self._session
        while not session.is_unwanted():
            # The result is ignored: the next generation starts all tasks in any case.
            self._carry_out_orders()
            if (seconds := left()) <= 0:
                return True
            session.expect_newest(is_recent_enough=True)
            if session.signal.wait(min(seconds, session.requests.interval)):
                session.signal.clear()  # no generation runs, so there is nothing to rebalance
        return False

    def _wait_for(self, seconds: float) -> bool:
        end = self._session.clock.now() + seconds
        return self._wait(lambda: end - self._session.clock.now())


def _is_pending(claim: Claim, record: ConnectorRecord, configs: Sequence[Mapping[str, str]]) -> bool:
    # Unchanged tasks fence their own predecessors.
    before = claim.before
    if before is None or claim.transactional_tasks != len(before.tasks):
        return True
    return before.config != record.config or [task.config for task in before.tasks] != list(configs)
