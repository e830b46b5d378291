"""Failed partitions of a sink: their back-off, and the failure of the connector."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from sinksdk.config import ConnectorConfig
from sinksdk.control.status import StatusKeeper
from sinksdk.engine import PartitionOutcome
from sinksdk.engine.clock import WallClock
from sinksdk.engine.outcome import Failure
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import TopicPartition
from sinksdk.runtime.backoff import Backoff, Waits, random_jitter
from sinksdk.runtime.planner import remember
from sinksdk.store.records import GenerationPlan, PlannedRange
from sinksdk.store.reports import PartitionProgress, PartitionStatus
from sinksdk.support.logs import Outage

log = logging.getLogger(__name__)

_MOST_MOVES: Final = 5  # how often a task may move a partition back before that counts as a loop
_MOVES_COUNT_FOR: Final = 600.0  # seconds, where restart.window.ms is 0
_LONGEST_WAIT: Final = 3600.0  # seconds, where errors.retry.timeout is -1


class PartitionFailures:
    """One connector's partitions that failed, or did not commit everything. Starts without failures.

    Args:
        config: ``restart.max.attempts`` is the number of failures after which the connector has failed.
        status: remembers failures until the next start of the driver.
        jitter: factor of the delays while a required system is unavailable.
    """

    # More than ten attributes: each kind of failure has its own count.
    def __init__(
        self,
        config: ConnectorConfig,
        status: StatusKeeper,
        backoff: Backoff,
        clock: WallClock,
        jitter: Callable[[], float] = random_jitter,
    ) -> None:
        self.backoff = backoff
        """Times at which partitions may be opened, and discarding retried."""
        self._config = config
        self._status = status
        self._clock = clock
        self._has_discarded_at_last = False
        self._hopeless: PartitionOutcome | None = None
        self._refused: dict[TopicPartition, PartitionOutcome] = {}
        self._overtaken: Counter[TopicPartition] = Counter()
        self._outage = Outage(
            log, f"connector {config.name}: what its partitions waited for", clock=clock.now
        )
        self._waits = Waits.of_restarts(f"connector {config.name}", config, clock, jitter)
        forget_failures(status)

    def reset(self) -> None:
        """At the operator's request: open failed partitions again, at once and with all attempts."""
        forget_failures(self._status)
        self.backoff.reset_all()

    def away(self, error: RetriableException | None) -> float:
        """A required system is unavailable, or (None) available; seconds until the next attempt."""
        return self._waits.record(error, self._status.wait_for)

    def may_discard_before_the_end(self) -> bool:
        """Once before a run ends: the next one may be months away, and stale data takes up storage."""
        if self._has_discarded_at_last:
            return False
        self._has_discarded_at_last = True
        self.backoff.discard_now()
        return True

    def record(
        self,
        plan: GenerationPlan,
        outcomes: Sequence[PartitionOutcome],
        overtaken: Collection[TopicPartition] = (),
    ) -> None:
        """Record the tails and failures of an ended generation; failed partitions wait.

        Args:
            overtaken: partitions of which retention has removed records before they were read. They are
                opened again where their log begins by then. That is no failure, but each time in a row they
                wait longer, so that the others are read meanwhile.
        """
        self._record(plan, outcomes)
        for outcome in outcomes:
            self._note_overtaken(outcome.partition, is_overtaken=outcome.partition in overtaken)

    def _record(self, plan: GenerationPlan, outcomes: Sequence[PartitionOutcome]) -> None:
        planned = {p.topic_partition: p for task in plan.tasks for p in task.ranges}
        for outcome in outcomes:
            before = self._status.of(outcome.partition)
            status = count_failures(before, planned[outcome.partition], outcome)
            status = remember(status, planned[outcome.partition], outcome)
            lately = self._lately(before)
            if outcome.failure is not None and outcome.failure.retry is None:
                lately.append(self._clock.time())
            # One more than the limit is enough to count.
            kept = lately[-self._config.restart_max_attempts - 1 :]
            status = status.model_copy(update={"failed_at": tuple(kept)})
            self._status.update([status])
            self.backoff.reset(outcome.partition)
            self._refused.pop(outcome.partition, None)
            if outcome.failure is None:
                if outcome.moved_to is not None:
                    self._moved(outcome, status)
                elif _is_refused(planned[outcome.partition], outcome):
                    self._refused[outcome.partition] = outcome
                    self.backoff.refused(outcome.partition)
                continue
            if outcome.failure.retry is not None:
                self._await_retry(outcome.partition, outcome.failure)
                continue
            failures = max(status.failures, len(kept))
            if failures > self._config.restart_max_attempts or outcome.failure.is_final:
                self._hopeless = self._hopeless or outcome
            if not (outcome.failure.at_once and failures == 1):
                self.backoff.failed(outcome.partition, failures)
                self._log_restart(outcome, failures)
        if not any(outcome.failure and outcome.failure.retry for outcome in outcomes):
            self._outage.worked()
        self._status.save()

    def _await_retry(self, partition: TopicPartition, failure: Failure) -> None:
        """A retriable failure: retry at the time that its task reported. It uses up no attempt.

        That time is of the executor's clock, which may be wrong by hours.
        """
        retry = failure.retry
        assert retry is not None  # noqa: S101 - else it is no wait
        timeout = self._config.errors_retry_timeout
        longest = timeout / 1000 if timeout >= 0 else _LONGEST_WAIT
        seconds = min(max(retry.next_attempt - self._clock.time(), 0.0), longest)
        self.backoff.waits(partition, seconds)
        self._outage.failed(
            "connector %s: %s waits without a place, and is tried again in %.1f s (failed %d times since "
            "%.0f s, errors.retry.timeout=%d): %s",
            self._config.name,
            partition,
            seconds,
            retry.attempts,
            self._clock.time() - retry.since,
            timeout,
            failure.message,
        )

    def _moved(self, outcome: PartitionOutcome, status: PartitionStatus) -> None:
        """A task moved its partition back. That is no failure, but must not become an endless loop."""
        now, window = self._clock.time(), self._config.restart_window_ms / 1000 or _MOVES_COUNT_FOR
        moved = [*(at for at in status.moved_at if now - window < at <= now), now]
        self._status.update([status.model_copy(update={"moved_at": tuple(moved[-_MOST_MOVES - 1 :])})])
        if len(moved) > _MOST_MOVES:
            error = ConnectException(
                f"its task asked {len(moved)} times within {window:g} s to go back, the last time to offset "
                f"{outcome.moved_to}: what it asks for in open does not follow what it lets be committed"
            )
            self._hopeless = self._hopeless or replace(outcome, failure=Failure.of(error, is_final=True))
        elif len(moved) > 1:
            self.backoff.failed(outcome.partition, len(moved) - 1)

    def _note_overtaken(self, partition: TopicPartition, *, is_overtaken: bool) -> None:
        if not is_overtaken:
            self._overtaken.pop(partition, None)
            return
        self._overtaken[partition] += 1
        self.backoff.failed(partition, self._overtaken[partition])
        log.warning(
            "connector %s: %s: retention has removed records before they were read; it is looked at again "
            "in %.1f s, from where its log begins then (on.data.loss=%s)",
            self._config.name,
            partition,
            self.backoff.waiting(partition),
            self._config.on_data_loss,
        )

    def _lately(self, status: PartitionStatus | None) -> list[float]:
        """Times of a partition's failures within the window."""
        now, window = self._clock.time(), self._config.restart_window_ms / 1000
        return [at for at in status.failed_at if now - window < at <= now] if status else []

    def _log_restart(self, outcome: PartitionOutcome, failures: int) -> None:
        if outcome is not self._hopeless and failures <= self._config.restart_max_attempts:
            log.warning(
                "connector %s: %s is opened again in %.1f s (attempt %d of %d): %s",
                self._config.name,
                outcome.partition,
                self.backoff.waiting(outcome.partition),
                failures,
                self._config.restart_max_attempts,
                outcome.failure.message if outcome.failure else "",
            )

    def would_give_up(self, progress: PartitionProgress) -> bool:
        """Whether a partition of the running generation has failed once too often, or for good."""
        status = self._status.of(progress.topic_partition)
        failures = max(status.failures, len(self._lately(status))) if status else 0
        return (
            progress.failure is not None
            and progress.retry is None
            and (progress.is_final or failures >= self._config.restart_max_attempts)
        )

    def given_up(self) -> ConnectException | None:
        """The error for a partition that failed too often."""
        return None if self._hopeless is None else _given_up(self._config, self._hopeless)

    def left_over(self) -> ConnectException | None:
        """The error for a task that did not commit everything at a closing end."""
        return _left_over(self._config, self._refused) if self._refused else None


def forget_failures(status: StatusKeeper) -> None:
    """Reset the attempts of failed partitions."""
    forgotten: dict[str, Any] = {"failures": 0, "failed_at": (), "moved_at": (), "retry": None}
    status.update(known.model_copy(update=forgotten) for known in status.partitions())
    status.forget_tasks()


def count_failures(
    status: PartitionStatus | None, planned: PlannedRange, outcome: PartitionOutcome
) -> PartitionStatus:
    """How often in a row a partition has failed, without any progress in between, and why."""
    status = status or PartitionStatus(topic=planned.topic, partition=planned.partition)
    failure, failures = outcome.failure, 0
    if failure:  # a wait is no failure, and no success either
        made_progress = outcome.committed is not None and outcome.committed > planned.start
        failures = (0 if made_progress else status.failures) + (failure.retry is None)
    return status.model_copy(
        update={
            "failures": failures,
            "error": failure.message if failure else None,
            "trace": failure.trace if failure else None,
            "retry": failure.retry if failure else None,
        }
    )


def _is_refused(planned: PlannedRange, outcome: PartitionOutcome) -> bool:
    """Whether a task did not commit everything at a closing end, though all was delivered."""
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
    often = (
        "which no restart would heal"
        if outcome.failure and outcome.failure.is_final
        else f"{config.restart_max_attempts + 1} times in a row or within "
        f"{config.restart_window_ms / 1000:g} s (restart.max.attempts is {config.restart_max_attempts})"
    )
    error = ConnectException(
        f"connector {config.name} has FAILED: {outcome.partition} failed at offset {outcome.delivered}, "
        f"{often}: {cause}"
    )
    if outcome.failure:
        error.add_note(outcome.failure.trace)
    return error
