"""What a driver learns from the end of a generation: who failed, who waits, and when enough is enough."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sinksdk.config import ConnectorConfig
from sinksdk.engine import PartitionOutcome
from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition
from sinksdk.runtime.clock import WallClock
from sinksdk.runtime.pacing import Pacing
from sinksdk.runtime.planner import remember
from sinksdk.runtime.status import StatusKeeper
from sinksdk.store.records import GenerationPlan, PlannedRange
from sinksdk.store.reports import PartitionProgress, PartitionStatus

log = logging.getLogger(__name__)


class Restarts:
    """One connector's partitions that failed, or kept something back.

    Args:
        config: the connector's; ``restart.max.attempts`` says when it is given up.
        status: remembers failures over restarts of the driver.
        pacing: knows who has to wait.
        clock: time.
    """

    def __init__(
        self, config: ConnectorConfig, status: StatusKeeper, pacing: Pacing, clock: WallClock
    ) -> None:
        self._config = config
        self._status = status
        self._pacing = pacing
        self._clock = clock
        self._hopeless: PartitionOutcome | None = None
        self._refused: dict[TopicPartition, PartitionOutcome] = {}

    def learn(self, plan: GenerationPlan, outcomes: Sequence[PartitionOutcome]) -> None:
        """Remember tails and failures; a failed partition waits before it is opened again."""
        planned = {p.topic_partition: p for task in plan.tasks for p in task.ranges}
        for outcome in outcomes:
            before = self._status.of(outcome.partition)
            status = remember(before, planned[outcome.partition], outcome)
            lately = self._lately(before)
            if outcome.failure is not None:
                lately.append(self._clock.time())
            # One more than it takes to give up tells all there is to tell.
            kept = lately[-self._config.restart_max_attempts - 1 :]
            status = status.model_copy(update={"failed_at": tuple(kept)})
            self._status.update([status])
            self._pacing.forget(outcome.partition)
            self._refused.pop(outcome.partition, None)
            if outcome.failure is None:
                if _is_refused(planned[outcome.partition], outcome):
                    self._refused[outcome.partition] = outcome
                    self._pacing.refused(outcome.partition)
                continue
            failures = max(status.failures, len(kept))
            if failures > self._config.restart_max_attempts:
                self._hopeless = self._hopeless or outcome
            if not (outcome.failure.at_once and failures == 1):
                self._pacing.failed(outcome.partition, failures)
                self._tell(outcome, failures)
        self._status.save()

    def _lately(self, status: PartitionStatus | None) -> list[float]:
        """When a partition failed within the window."""
        now, window = self._clock.time(), self._config.restart_window_ms / 1000
        return [at for at in status.failed_at if now - window < at <= now] if status else []

    def _tell(self, outcome: PartitionOutcome, failures: int) -> None:
        if failures <= self._config.restart_max_attempts:
            log.warning(
                "connector %s: %s is opened again in %.1f s (attempt %d of %d): %s",
                self._config.name,
                outcome.partition,
                self._pacing.waiting(outcome.partition),
                failures,
                self._config.restart_max_attempts,
                outcome.failure.message if outcome.failure else "",
            )

    def would_give_up(self, progress: PartitionProgress) -> bool:
        """Whether a partition of the running generation has failed once too often."""
        status = self._status.of(progress.topic_partition)
        failures = max(status.failures, len(self._lately(status))) if status else 0
        return progress.failure is not None and failures >= self._config.restart_max_attempts

    def given_up(self) -> ConnectException | None:
        """What to raise when a partition failed too often in a row."""
        return None if self._hopeless is None else _given_up(self._config, self._hopeless)

    def left_over(self) -> ConnectException | None:
        """What to raise when all was delivered, the end was closing, and something was kept back."""
        return _left_over(self._config, self._refused) if self._refused else None


def _is_refused(planned: PlannedRange, outcome: PartitionOutcome) -> bool:
    """Whether a task kept something back though all was delivered and the end was closing."""
    return planned.due and outcome.tail > 0 and outcome.read_to >= planned.end


def _left_over(config: ConnectorConfig, refused: dict[TopicPartition, PartitionOutcome]) -> ConnectException:
    parts = ", ".join(
        f"{partition} up to {outcome.committed if outcome.committed is not None else 'nothing'} of "
        f"{outcome.read_to} ({outcome.tail} records left)"
        for partition, outcome in sorted(refused.items())
    )
    return ConnectException(
        f"connector {config.name}: everything was delivered and the end was closing, but pre_commit returned "
        f"only {parts}; return what is durable, and while context.is_closing() make everything durable"
    )


def _given_up(config: ConnectorConfig, outcome: PartitionOutcome) -> ConnectException:
    cause = outcome.failure.message if outcome.failure else "it reported nothing"
    error = ConnectException(
        f"connector {config.name} has FAILED: {outcome.partition} failed at offset {outcome.delivered}, "
        f"{config.restart_max_attempts + 1} times in a row or within {config.restart_window_ms / 1000:g} s "
        f"(restart.max.attempts is {config.restart_max_attempts}): {cause}"
    )
    if outcome.failure:
        error.add_note(outcome.failure.trace)
    return error
