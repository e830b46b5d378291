"""Drives one connector: generation after generation, until it is asked to stop."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.context import ClosingReason
from sinksdk.control.connector_calls import CallExecutor, ThreadExecutor
from sinksdk.control.consumer_group import BackgroundSync, ConsumerGroupSync, NoSync, OffsetGroup
from sinksdk.control.ends import EndsKeeper
from sinksdk.control.history import HistoryKeeper, of_partition
from sinksdk.control.progress import Listener, ProgressTracker, Silent
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.control.totals import TotalsKeeper
from sinksdk.engine import PartitionOutcome
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.logs import logging_about
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.backoff import Backoff, Waits, random_jitter
from sinksdk.runtime.failures import PartitionFailures
from sinksdk.runtime.partition_lag import PartitionLag, TrailingGaps
from sinksdk.runtime.planner import Decision, Planner, Turns, assign
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.source_monitor import Horizon, SourceMonitor, final_offsets, first_positions
from sinksdk.runtime.supervisor import RunningGeneration, Supervisor
from sinksdk.runtime.topics import Read, excused
from sinksdk.sources import Source
from sinksdk.store import Store
from sinksdk.store.generations import Claim
from sinksdk.store.records import (
    ConnectorRecord,
    GenerationPlan,
    PlannedRange,
    TaskPlan,
)
from sinksdk.store.reports import (
    PartitionProgress,
)
from sinksdk.threads import Background, in_a_thread

log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Starts a generation's job."""

    def launch(self, plan: GenerationPlan) -> RunningGeneration:
        """Start it; it runs on its own."""
        ...


class ConnectorDriver:
    """Runs one connector from its start to its end.

    Args:
        store: what must survive.
        source: where records come from.
        connector: the connector; its ``start`` and ``stop`` are called here.
        config: its validated configuration.
        raw: the same as it was written.
        launcher: starts generations.
        listener: watches.
        clock: time.
        signal: asks it to close.
        group: offsets kept outside, to begin from and to show commits in.
        background: looks at the source while a generation runs.
        executors: make what runs the connector's own code.
        jitter: what each back-off is multiplied by.
        requests: what an operator wants of it.
        record: where the configuration comes from, if it is the store's own; None: it becomes the store's
            once the driver has claimed a generation.
        waits: told once what the connector needed for its start is there.
        mirrors: make what shows in the group how far everything is published.
    """

    def __init__(
        self,
        *,
        store: Store,
        source: Source,
        connector: SinkConnector,
        config: ConnectorConfig,
        raw: Mapping[str, Any],
        launcher: Launcher,
        listener: Listener | None = None,
        clock: WallClock | None = None,
        signal: ClosingSignal | None = None,
        group: OffsetGroup | None = None,
        background: Background = in_a_thread,
        executors: Callable[[], CallExecutor] = ThreadExecutor,
        jitter: Callable[[], float] = random_jitter,
        requests: PendingRequests | None = None,
        record: ConnectorRecord | None = None,
        waits: Waits | None = None,
        mirrors: Callable[[OffsetGroup, str], ConsumerGroupSync] = BackgroundSync,
    ) -> None:
        self._store = store
        self._connector = connector
        self._config = config
        self._launcher = launcher
        self._listener = listener or Silent()
        self._clock = clock or SystemWallClock()
        self._signal = signal or ClosingSignal()
        self._group = group
        self._gaps = TrailingGaps(source, background)
        self._mirrors = mirrors
        self._mirror: ConsumerGroupSync = NoSync()
        self._policy = connector.batch_policy(config)
        self._planner = Planner(
            self._policy,
            config.generation_max_records,
            skip_lost=config.on_data_loss == "skip",
        )
        self._tenure = DriverSession(
            store,
            connector,
            config,
            raw,
            clock=self._clock,
            signal=self._signal,
            executors=executors,
            requests=requests,
            record=record,
            meanwhile=self._glance,
            waits=waits,
        )
        self._generations, self._requests = self._tenure.generations, self._tenure.requests
        self._is_flushing = False
        self._is_cut = False
        self._lookout = SourceMonitor.of(config, source, self._clock, background)
        self._watch = self._lookout.watch
        self._views = ProgressTracker()
        self._history = HistoryKeeper(store, config.name, self._clock)
        self._totals = TotalsKeeper(store, config.name)
        self._ends = EndsKeeper(store, config.name, self._clock)
        self._until_caught_up = False
        self._has_discarded_at_last = False
        self._task_waits = Waits.of_restarts(f"connector {config.name}", config, self._clock, jitter)
        self._turns = Turns(config.generation_max_ms / 1000)
        self._pacing = Backoff.of_restarts(config, self._clock, jitter)

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """End: what runs flushes, commits and closes first. From any thread or signal handler."""
        self._signal.ask(reason)

    def rebalance(self) -> None:
        """End the running generation early; the next one follows with another assignment."""
        self._signal.ask(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        """Run until :meth:`close`, or until everything there is now is committed, tails included.

        Returns:
            Why an operator wants the connector stopped; None when he does not.

        Raises:
            ConfigException: the connector refuses to start, or where it begins cannot be said.
            MissingSourceTopicException: a subscribed topic is not there, or no longer; what was read of
                the others was committed first.
            FencedException: a newer driver has taken over.
            ConnectException: a partition failed too often in a row; the others were committed first.
        """
        self._until_caught_up = until_caught_up
        if self._group is not None and self._config.offset_mirror:
            self._mirror = self._mirrors(self._group, self._config.name)
        try:
            return self._tenure.run(self._drive)
        finally:
            self._mirror.close()

    def _drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        """Generation after generation, the first of which is claimed."""
        self._status = self._tenure.status
        self._restarts = PartitionFailures(self._config, self._status, self._pacing, self._clock)
        self._backlogs = PartitionLag(
            self._config,
            lambda topics: self._tenure.call("subscribed", lambda: self._connector.subscribed(topics)),
            status=self._status,
            pacing=self._pacing,
            views=self._views,
            clock=self._clock,
            is_fixed=self._until_caught_up,
        )
        self._horizon = Horizon(
            self._config,
            self._lookout,
            self._status,
            self._signal,
            self._clock,
            is_fixed=self._until_caught_up,
            is_unwanted=self._tenure.is_unwanted,
        )
        self._totals.catch_up()
        self._ends.catch_up()
        while True:
            claim = self._begin(claim, record)
            committed = {p: entry.offset for p, entry in claim.committed.items()}
            self._views.committed(committed)
            self._ends.committed(committed)
            self._lookout.compare_with(Read(committed, claim.topic_ids))
            self._mirror.follow(claim.visible())
            decision = self._await_work(claim)
            if decision is None:
                return self._requests.closing()
            plan = self._generations.plan(
                claim,
                self._tasks(decision, claim),
                record.version,
                record.config,
                # Those of commits too: they may be older than the remembering of ids.
                topic_ids=self._ids(_topics_read(decision.ranges) | {p.topic for p in claim.committed}),
                is_read=self._lookout.covers,
            )
            # From here on it matters whether a topic is still the one that was planned.
            self._lookout.compare_with(Read(committed, plan.topic_ids))
            with logging_about(generation=plan.generation):
                self._run(plan)
            self._tenure.yield_to_successor()
            self._raise_if_it_is_over()
            if self._tenure.is_ended():
                return self._requests.closing()
            claim = self._generations.claim()
            self._pacing.discarded(
                (planned.topic_partition for task in plan.tasks for planned in task.ranges),
                (partition for partition, tokens in claim.stale.items() if tokens),
            )

    def _begin(self, claim: Claim, record: ConnectorRecord) -> Claim:
        """Commit where partitions begin of which that is not decided, unless it is at their first record.

        That is every partition at a connector's very first start, and what was taken back by hand since.

        Raises:
            ConfigException: where that is cannot be said.
        """
        undecided, reset = claim.undecided, self._config.auto_offset_reset
        # After a reset the group has nothing to say: it holds what this connector has mirrored.
        group = undecided is not None and undecided.first and self._config.offset_source == "group"
        if undecided is None or (reset == "earliest" and not group):
            return claim
        found = self._first_look()
        if found is None:
            return claim  # the end was asked for: the next start decides
        available = {p: at for p, at in found.items() if p not in claim.committed and undecided.covers(p)}
        offsets = self._offsets_of_group(available.keys()) if group else {}
        if offsets is None:
            return claim
        positions = first_positions(available, reset, offsets)
        ids = self._ids({partition.topic for partition in positions})
        return self._generations.settle(claim, positions, record.version, record.config, topic_ids=ids)

    def _offsets_of_group(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int] | None:
        """Where to begin; None: the end was asked for."""
        group = self._group
        if group is None:
            return {}
        while not self._tenure.is_ended():
            offsets = self._horizon.patiently(lambda: final_offsets(group, partitions))
            if offsets is not None:
                return offsets
            self._signal.answered()  # nothing runs: there is nothing to rebalance
        return None

    def _raise_if_it_is_over(self) -> None:
        problem = self._restarts.given_up() or (self._restarts.left_over() if self._until_caught_up else None)
        if problem is not None:
            raise problem

    # -- deciding --------------------------------------------------------------------------------

    def _await_work(self, claim: Claim) -> Decision | None:
        """Wait until something is worth a generation; None when there is nothing more to do.

        Raises:
            MissingSourceTopicException: a topic is certainly missing.
        """
        while True:
            if self._signal.reason is not None:
                self._signal.answered()  # nothing runs: there is nothing to rebalance
            if self._tenure.is_ended():
                return None
            self._follow_orders()
            available = self._horizon.look()
            if self._signal.reason is not None:
                continue  # that may have ended the look: nothing is known then of what is there
            backlogs = self._backlogs.of(claim, available)
            self._tell_ends()
            now = self._clock.time()
            ready = [b for b in backlogs if not self._pacing.is_waiting(b.partition)]
            decision = self._planner.decide(ready, now, flush=self._until_caught_up or self._is_flushing)
            if decision.ranges:
                return decision
            self._is_flushing = False
            is_known = not self._watch.is_in_doubt and not self._lookout.unavailable
            is_done = is_known and len(ready) == len(backlogs)
            if self._until_caught_up and is_done:
                if self._may_discard_before_the_end(claim):
                    continue
                return None
            if gaps := self._gaps.among(ready):
                return self._planner.all_of(gaps, ready)
            self._status.save_if_due()
            self._listener.progress(self._views.of())
            self._wait(now, decision.due_at)

    def _may_discard_before_the_end(self, claim: Claim) -> bool:
        """Once before a run ends: the next one may be months away, and what is left takes up storage."""
        if self._has_discarded_at_last or not any(claim.stale.values()):
            return False
        self._has_discarded_at_last = True
        self._pacing.discard_now()
        return True

    def _follow_orders(self) -> None:
        """What was ordered while nothing runs."""
        self._requests.consume("rebalance")  # the next generation is assigned anew in any case
        self._is_flushing = self._requests.consume("flush") or self._is_flushing
        if self._requests.consume("restart_failed"):
            self._forgive()

    def _forgive(self) -> None:
        """What failed is opened again, at once and with all its attempts."""
        self._status.forgive()
        self._pacing.forget_all()

    def _glance(self) -> None:
        """Look at the source in the background, while something else goes on."""
        self._lookout.glance()
        self._tell_ends()

    def _tell_ends(self) -> None:
        self._ends.saw(self._lookout.ends)
        self._ends.save_if_due()

    def _must_close(self, topics: set[str]) -> ClosingReason | None:
        """Why the running generation shall close, other than for its own tasks' failures."""
        self._glance()
        self._status.leave_out(self._lookout.unavailable)
        if not self._until_caught_up:  # else it reads no further than what was there at its start
            self._views.ends(self._lookout.ends)
        self._requests.look()
        if (reason := self._requests.closing()) is not None:
            return reason
        if self._requests.consume("restart_failed"):
            self._forgive()
            return ClosingReason.REBALANCE  # what failed is opened by the next generation
        if self._requests.consume("rebalance"):
            return ClosingReason.REBALANCE
        if self._requests.consume("flush"):
            self._is_flushing = True
            return ClosingReason.DUE
        return ClosingReason.FAILURE if self._watch.must_close(topics) else None

    def _wait(self, now: float, due_at: float) -> None:
        """Until it is time to look at the source again, or an operator wants something."""
        recheck = self._watch.recheck_at - self._clock.now()
        left = min(self._config.poll_interval_ms / 1000, due_at - now, recheck, *self._pacing.delays())
        while True:
            step = max(min(left, self._requests.interval), 0.0)
            is_asked = self._signal.wait(step)
            left -= step
            if is_asked or left <= 0:
                break
            self._status.save_if_due()
            self._requests.look()
            if self._requests.has_changed():
                break
        self._tenure.expect_newest(is_recent_enough=True)

    def _first_look(self) -> dict[TopicPartition, OffsetRange] | None:
        """What there is before anything was read, once no topic is in doubt. None: the end was asked for."""
        while not self._tenure.is_ended():
            available = self._horizon.look()
            if self._horizon.is_known and not self._lookout.unavailable:
                return available
            self._wait(self._clock.time(), math.inf)
            self._signal.answered()  # nothing runs: there is nothing to rebalance
        return None

    def _tasks(self, decision: Decision, claim: Claim) -> list[TaskPlan]:
        configs = self._tenure.task_configs()
        shares = assign(decision.ranges, len(configs), claim.previous)
        tasks = [
            TaskPlan(ranges=self._planner.share(share, decision, self._turns.most), config=own)
            for share, own in zip(shares, configs, strict=False)
        ]
        uncut = {planned.topic_partition: planned for planned in decision.ranges}
        self._is_cut = any(r is not uncut[r.topic_partition] for task in tasks for r in task.ranges)
        self._is_flushing = self._is_flushing and self._is_cut
        return tasks

    # -- running ---------------------------------------------------------------------------------

    def _ids(self, topics: set[str]) -> dict[str, str]:
        """Ids of topics, as they were in the last look."""
        return {topic: known for topic, known in self._lookout.ids.items() if topic in topics}

    def _run(self, plan: GenerationPlan) -> None:
        self._listener.planned(plan)
        self._views.generation_begins()
        self._history.generation_begins()
        topics = _topics_read(planned for task in plan.tasks for planned in task.ranges)

        def on_progress(progress: Sequence[PartitionProgress]) -> None:
            if progress and supervisor.away is None:
                self._heed_tasks(None)
            self._views.count(progress)
            self._history.progress(map(of_partition, progress))
            self._status.save_if_due()
            self._ends.committed({row.topic_partition: row.committed for row in progress})
            self._mirror.follow({r.topic_partition: r.visible for r in progress if r.visible is not None})
            self._listener.progress(self._views.of(progress))

        supervisor = Supervisor(
            self._store,
            self._config.name,
            self._generations,
            self._signal,
            graceful=self._config.graceful_timeout_ms / 1000,
            is_hopeless=self._restarts.would_give_up,
            must_close=lambda: self._must_close(topics),
            on_progress=on_progress,
            on_closing=lambda reason: self._listener.closing(plan.generation, reason),
            clock=self._clock,
        )
        try:
            running = self._launcher.launch(plan)
        except ConnectException as error:
            if not isinstance(error, RetriableException) and not self._lookout.gone_of(topics):
                raise
            log.info("connector %s: %s; planned again", self._config.name, error)
            self._signal.wait(self._config.poll_interval_ms / 1000)
            return
        began = self._clock.now()
        outcomes = supervisor.run(running, plan)
        self._turns.learn(self._clock.now() - began, is_cut=self._is_cut)
        self._totals.add(plan.generation, supervisor.measures, {o.partition: o.counts for o in outcomes})
        overtaken: set[TopicPartition] = set()
        if any(outcome.failure for outcome in outcomes):
            gone = self._lookout.gone_of(topics)
            overtaken = self._lookout.overtaken(_next_offsets(plan, outcomes))
            if gone or overtaken:
                outcomes = excused(outcomes, gone, overtaken)
        if self._signal.is_final:
            self._tell_of_unclosed(outcomes)
        self._signal.answered()
        self._restarts.learn(plan, outcomes)
        self._ends.committed({outcome.partition: outcome.committed for outcome in outcomes})
        self._ends.save()
        self._restarts.overtaken([outcome.partition for outcome in outcomes], overtaken)
        self._views.ended(outcomes)
        self._history.ended([of_partition(outcome) for outcome in outcomes])
        self._mirror.follow({o.partition: o.visible for o in outcomes if o.visible is not None})
        self._listener.ended(plan.generation, self._views.of(outcomes))
        self._horizon.wait(self._heed_tasks(supervisor.away))

    def _heed_tasks(self, away: RetriableException | None) -> float:
        """Seconds to wait for what the tasks need and is away; None: they work."""
        return self._task_waits.heed(away, self._status.wait_for)

    def _tell_of_unclosed(self, outcomes: Sequence[PartitionOutcome]) -> None:
        """A stop that could not flush everything loses nothing, but whoever asked for it wants to know."""
        unclosed = [str(outcome.partition) for outcome in outcomes if outcome.failure is not None]
        if unclosed:
            log.warning(
                "connector %s: stopping, what was read of %s since its last commit was not committed; it "
                "is read again at the next start",
                self._config.name,
                ", ".join(unclosed),
            )


def _topics_read(ranges: Iterable[PlannedRange]) -> set[str]:
    """Those that something is read of; an empty range only settles what was read before."""
    return {planned.topic for planned in ranges if planned.end > planned.start}


def _next_offsets(plan: GenerationPlan, outcomes: Iterable[PartitionOutcome]) -> dict[TopicPartition, int]:
    """Where partitions that did not end well would be read next."""
    committed = {outcome.partition: outcome.committed for outcome in outcomes if outcome.failure}
    return {
        planned.topic_partition: max(planned.start, committed[planned.topic_partition] or 0)
        for task in plan.tasks
        for planned in task.ranges
        if planned.start < planned.end and planned.topic_partition in committed
    }
