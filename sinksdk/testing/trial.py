"""Run one schedule of a sink under test, step by step; it needs no Hypothesis, so that a replay does not."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic

from sinksdk.context import ClosingReason, SinkTaskContext
from sinksdk.errors import ConnectException, FencedException
from sinksdk.offsets import OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.store import StoreUnavailable
from sinksdk.store.records import TaskRecord
from sinksdk.support.hooks import finished
from sinksdk.task import SinkTask
from sinksdk.testing.contract import HIDDEN, D, KitError, Row, SinkContractError, Step, Subject, upcoming
from sinksdk.testing.doubles import MemoryCommitLog
from sinksdk.testing.faults import COMMIT_LOG, DESTINATION, TASK, Crash, Fault, FaultKind, FaultPlan
from sinksdk.testing.harness import SinkTaskHarness
from sinksdk.testing.judge import TRANSFORMS, EndlessSource, Judge, Seen
from sinksdk.testing.keyed import KeyedJudge

__tracebackhide__ = HIDDEN

END: Final = "recovery: no more faults, zombies close late, a new owner reads everything and closes"
_ON_A_PARTITION: Final = (
    *("deliver", "read_range", "skip", "poison", "alter", "reset", "revoke", "lose"),
    "zombie_deliver",
)
_SENTENCES: Final[Mapping[str, Callable[..., str]]] = {
    "deliver": lambda partition, count: (
        f"{_records(count)} of {partition} {'is' if count == 1 else 'are'} put"
    ),
    "read_range": lambda partition, count: (
        f"a range of {count} offsets of {partition} is read to its end, committed and closed"
    ),
    "transform": lambda number: (
        f"the sink's task restarts behind a transform {_transforms(TRANSFORMS[number])}"
    ),
    "skip": lambda partition, count: f"{partition} has a gap of {count} offsets",
    "poison": lambda partition, before=0, after=0: (
        f"a record of {partition} that cannot be delivered is put{_among(before, after)}"
    ),
    "commit": lambda: "a periodic commit",
    "tick": lambda seconds: f"{seconds} s pass",
    "rebalance": lambda: "a rebalance: all partitions are closed with a commit, a new task opens them",
    "revoke": lambda partition: f"{partition} is revoked with a commit, the others stay",
    "lose": lambda partition: f"{partition} is lost: it is closed without a commit",
    "fence": lambda: "another attempt takes over, this one continues as a zombie",
    "freeze": lambda dies: (
        "the next task that discards its predecessor's tokens freezes right before discard, and resumes "
        f"after its successor has {'committed and died before publish' if dies else 'put records'}"
    ),
    "alter": lambda partition, to: (
        f"an operator stops the connector and sets the offset of {partition} to {to}"
    ),
    "reset": lambda partition: f"an operator stops the connector and removes the offset of {partition}",
    "crash": lambda: "a crash",
    "fault": lambda where, at, kind: f"fault at the {upcoming(at, where)}: {kind}",
    "zombie_deliver": lambda partition, count: f"the zombie receives {_records(count)} of {partition}",
    "zombie_commit": lambda: "the zombie tries to commit",
    "zombie_tick": lambda seconds: f"{seconds} s pass for the zombie",
    "zombie_close": lambda: "the zombie closes, late",
}

STEPS: Final = tuple(_SENTENCES)


def _transforms(times: Sequence[int]) -> str:
    if len(times) == 1:
        return f"that turns each record into {_records(times[0])}"
    return f"that turns successive records into {', '.join(map(str, times))} records, repeatedly"


def _among(before: int, after: int) -> str:
    others = [f"{_records(n)} {where} it" for n, where in ((before, "before"), (after, "after")) if n]
    return f", with {' and '.join(others)}" if others else ""


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"


def _sentence(name: str, arguments: Sequence[Any], partitions: Sequence[TopicPartition]) -> str:
    if name not in _SENTENCES:
        return " ".join(map(str, (name, *arguments)))
    if name in _ON_A_PARTITION:
        arguments = partitions[arguments[0] % len(partitions)], *arguments[1:]
    return _SENTENCES[name](*arguments)


PORTION: Final = 3


class FaultyCommitLog(MemoryCommitLog):
    # Writes fail as the fault plan says, with or without effect; each failure ends the attempt.
    def __init__(self, faults: FaultPlan, judge: Judge) -> None:
        super().__init__()
        self._faults = faults
        self._judge = judge

    def _save(self, record: TaskRecord) -> None:
        save = super()._save

        def effect() -> None:
            before = self.saved
            save(record)
            self._judge.saved(before, self.saved)

        if self.is_fenced:
            effect()
        try:
            self._faults.run(COMMIT_LOG, effect)
        except ConnectException as error:
            raise StoreUnavailable(str(error)) from error


class Process(SinkTaskHarness):
    def __init__(self, trial: Trial[Any]) -> None:
        self._trial = trial
        self._faults = trial.faults
        self._judge = trial.judge
        config = trial.subject.config_for(trial.destination)
        super().__init__(
            self._make_task,
            config,
            dead_letters=trial.judge if trial.subject.capabilities.dead_letters else None,
            log=FaultyCommitLog(trial.faults, trial.judge),
            clock=trial.faults.clock,
        )

    def _make_task(self) -> SinkTask:
        # None: the task takes whole batches.
        task = self._trial.subject.make_task(self._trial.destination)
        if task.max_poll_records is not None:
            task.max_poll_records = PORTION  # type: ignore[misc]  # of this very task, for its trials
        return task

    def _build(self) -> None:
        self.opened: set[TopicPartition] = set()
        self.dies_in_publish = False
        self._context: SinkTaskContext | None = None
        self._depth = 0
        self._generation = self._trial.generation
        self._options = self._trial.subject.options(
            self._config, is_transformed=self._trial.source.is_transformed
        )
        super()._build()

    def _observed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        watch: Callable[..., Any] | None = getattr(self, f"_watched_{name}", None)

        def finished_call(*arguments: Any) -> Any:
            return finished(name, method(*arguments))

        watched = finished_call if watch is None else partial(watch, finished_call)

        @functools.wraps(method)
        def observed(*arguments: Any) -> Any:
            kind = self._faults.take(TASK)
            if kind is FaultKind.CRASH_BEFORE:
                raise self._faults.crash()
            self._judge.acting(self.opened)
            if not self._depth:  # otherwise the task calls its own method
                self._check_engine(name, *arguments)
            self._depth += 1
            try:
                result = watched(*arguments)
            except Exception as error:
                self._trial.note(f"{name} raises {type(error).__name__}: {error}")
                raise
            finally:
                self._depth -= 1
            if kind is FaultKind.CRASH_AFTER:
                raise self._faults.crash()
            return result

        observed.__name__ = name
        return observed

    def _watched_initialize(self, method: Callable[..., Any], context: SinkTaskContext) -> None:
        self._context = context
        method(context)

    def _watched_open(self, method: Callable[..., Any], partitions: Sequence[TopicPartition]) -> None:
        self._judge.acting(partitions)
        method(partitions)
        self.opened.update(partitions)
        for partition in partitions:
            self._judge.opened(partition, getattr(self._context, "moves", {}).get(partition))

    def _watched_put(self, method: Callable[..., Any], records: Any) -> None:
        self._judge.put(records)
        method(records)

    def _watched_pre_commit(
        self, method: Callable[..., Any], offered: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Any:
        is_closing = self._is_closing()
        before = dict(offered)
        # A task may move back below its commit; then pre_commit is offered the lower offset.
        floor = {partition: min(self.floor(partition), offset.offset) for partition, offset in before.items()}
        returned = method(offered)
        prepared = {p: {token.id for token in self.log.prepared(p)} for p in before}
        self._judge.pre_committed(returned, before, floor, prepared, is_closing=is_closing)
        return returned

    def _is_closing(self) -> bool:
        return self._context is not None and self._context.is_closing()

    def _check_engine(self, name: str, *arguments: Any) -> None:
        # A violation at this point is a bug of the engine, not of the sink.
        concerned = set(arguments[0]) if name in ("pre_commit", "close") else set()
        if name == "put":
            concerned = {arguments[0].partition}
        if not concerned <= self.opened:
            self._judge.blame(
                f"{name} was called for partitions that are not open: this is a bug of sinksdk; please "
                f"report it"
            )
        if name != "pre_commit" and self._is_closing():
            self._judge.blame(f"is_closing() is true in {name}: this is a bug of sinksdk; please report it")

    def floor(self, partition: TopicPartition) -> int:
        committed = self.log.committed(partition)
        return committed.offset if committed else 0

    def _watched_publish(self, method: Callable[..., Any], partition: TopicPartition, tokens: Any) -> None:
        self._judge.acting([partition])
        if self.dies_in_publish:
            raise self._faults.crash()
        self._judge.met["published by the next owner"] += self._is_a_predecessors(partition)
        method(partition, tokens)
        self._judge.published(partition, tokens)

    def _watched_discard(self, method: Callable[..., Any], partition: TopicPartition, tokens: Any) -> None:
        self._judge.acting([partition])
        if self._is_a_predecessors(partition):
            self._judge.met["discarded by the next owner"] += 1
            self._trial.before_discard(self, partition)
            self._judge.acting([partition])
        try:
            method(partition, tokens)
        except Exception as error:
            self._judge.not_discarded(partition, tokens, error)
            raise
        self._judge.discarded(partition, tokens)

    def _is_a_predecessors(self, partition: TopicPartition) -> bool:
        # A task may call the method itself in close, with tokens of its own.
        return self._depth == 1 and partition not in self.opened

    def _watched_close(self, method: Callable[..., Any], partitions: Sequence[TopicPartition]) -> Any:
        self.opened.difference_update(partitions)
        return self._watched_end("close", method, partitions)

    def _watched_stop(self, method: Callable[..., Any]) -> Any:
        return self._watched_end("stop", method)

    def _watched_end(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        before = self._trial.see()
        try:
            return method(*arguments)
        finally:
            self._judge.changed_by_closing(name, before, self._trial.see())


# A slow operation lasts longer than the runtime waits for a closing task.
PATIENCE: Final = 60.0
_MOST_STARTS: Final = 20
_MOST_RECOVERIES: Final = 3
_MOST_ATTEMPTS: Final = 100


class Trial(Generic[D]):
    """Runs attempts at a task one after the other, as the runtime would, and checks each step."""

    # More than ten attributes: an author's own steps read them.

    def __init__(self, subject: Subject[D], exercised: Counter[str] | None = None) -> None:
        self.subject = subject
        self.exercised = Counter[str]() if exercised is None else exercised
        self.faults = FaultPlan()
        self.destination = subject.destination(self.faults)
        self.source = EndlessSource(subject.partitions, subject.record)
        self.has_seen_rows = False
        promise = subject.capabilities
        is_keyed = isinstance(self._read_back(), Mapping)
        self.judge = (
            KeyedJudge(promise, self.source, subject.row) if is_keyed else Judge(promise, self.source)
        )
        self.steps: list[Step] = []
        self.story: list[str] = []
        self._is_over = False
        # Whether the successor of the next frozen task dies; None: no task is frozen.
        self._freezes: bool | None = None
        self._poisoned = 0
        self.generation = 1
        # Fenced attempts that have not noticed it yet, oldest first.
        self.zombies: list[Process] = []
        self.live: Process = self._started(Process(self))

    # -- running steps -----------------------------------------------------------------------------

    def step(self, name: str, *arguments: Any) -> None:
        """Run a step and check the contract. Raises SinkContractError if it is broken."""
        if self._is_over:
            return
        own = self.subject.steps.get(name)
        method = getattr(self, name, None) if name in STEPS else None
        if own is None and method is None:
            known = ", ".join(sorted({*STEPS, *self.subject.steps}))
            raise KitError(f"there is no step {name!r}; the steps are {known}")
        self.steps.append((name, *arguments))
        self.exercised[name] += 1
        self.story.append(_sentence(name, arguments, self.subject.partitions))
        before = self.faults.operations.total()
        if own is not None:
            own(self, *arguments)
        elif method is not None:
            method(*arguments)
        # Otherwise the step has called nothing.
        if own is not None or self.faults.operations.total() != before:
            self._judge_now()

    def finish(self) -> None:
        """Recover without faults: zombies close late, a new owner reads everything and closes.

        Raises:
            SinkContractError: a record or a commit is missing, repeated or left over.
        """
        if self._is_over:
            return
        self.story.append(END)
        self.faults.disarm()
        self._freezes = None
        while self.zombies:
            self.zombie_close()
        self._succeed()
        self._recover()
        self._discard_prepared()
        committed = self.live.log.offsets
        self.judge.check(self.see(), committed)
        leftovers = self.subject.leftovers_of(self.destination)
        self.judge.met["leftovers checked"] += leftovers is not None
        self.judge.check_end(committed, self.live.log.noted, leftovers or ())
        self._fail_if_wrong()
        self.end()

    def end(self) -> None:
        """Count what happened and clean up, once."""
        if self._is_over:
            return
        self._is_over = True
        self.exercised["cases"] += 1
        self.exercised["steps"] += len(self.steps)
        self.exercised["destination operations"] += self.faults.operations[DESTINATION]
        self.exercised.update(self.judge.met)
        self.exercised.update(self.source.met)
        for (where, kind), times in self.faults.happened.items():
            self.exercised[f"{where}: {kind}"] += times
        self.subject.clean_up(self.destination)

    # -- steps: the owner --------------------------------------------------------------------------

    def deliver(self, which: int, count: int) -> None:
        """Put the next records of a partition; open it first if it is closed."""
        self._deliver(self._partition(which), count)

    def read_range(self, which: int, count: int) -> None:
        """Read a range of ``count`` offsets to its end, with a closing commit of all of it, then close."""
        partition = self._partition(which)
        if self._is_open(partition):
            self.revoke(which)
        if reason := self._ended(partition):
            self._restart(partition, reason)
        owner = self.live
        if owner.worker.pending or self._is_open(partition):
            return
        start = owner.floor(partition)
        offsets = OffsetRange(start, start + count)
        batch = self.source.read_range(partition, offsets)
        if self.source.is_transformed and not len(batch):
            self.judge.met["transform: dropped all of a range"] += 1
        self._run(owner, lambda: owner.assign(partition, limits=offsets))
        if self.live is owner and self._is_open(partition):
            self._run(owner, lambda: owner.deliver(partition, batch))
            self._note_offsets(batch)
        if self.live is owner and self._is_open(partition) and not owner.worker.pending:
            self._run(owner, lambda: owner.finish(partition, ClosingReason.DUE))
            if self.live is owner and not self._ended(partition):
                self.judge.check_range(partition, offsets, batch, owner.floor(partition))

    def transform(self, number: int) -> None:
        """Switch to a transform that drops and multiplies records, and rebalance."""
        self.source.transform = TRANSFORMS[number % len(TRANSFORMS)]
        self.rebalance()

    def skip(self, which: int, count: int) -> None:
        """Leave a gap of ``count`` offsets without records, as after compaction."""
        self.source.skip(self._partition(which), count)

    def poison(self, which: int, before: int = 0, after: int = 0) -> None:
        """Put a record that cannot be delivered, after all waiting ones and between new ones."""
        partition = self._partition(which)
        poisons = self.subject.poisons
        for _ in range(before):
            self.source.produce(partition)
        self.source.produce(partition, poisons[self._poisoned % len(poisons)])
        self._poisoned += 1
        for _ in range(after):
            self.source.produce(partition)
        live = self.live
        start = live.position(partition) if self._is_open(partition) else live.floor(partition)
        self._deliver(partition, self.source.waiting(partition, start))

    def commit(self) -> None:
        """Make a periodic commit of all open partitions."""
        self._run(self.live, self.live.commit)

    def tick(self, seconds: float) -> None:
        """Let time pass: redeliveries and periodic commits are due."""
        self._run(self.live, lambda: self.live.advance(seconds))

    def rebalance(self) -> None:
        """Close all partitions with a commit; a new task opens them."""
        reopened = sorted(self.live.opened)
        closing = self.live
        self._run(closing, lambda: self._close(closing, ClosingReason.REBALANCE))
        if self.live is closing:
            self._run(closing, closing.worker.stop)
        if self.live is closing:
            self._succeed()
        for partition in reopened:
            self._open(partition)

    def revoke(self, which: int) -> None:
        """Close one partition with a commit; the others stay open, with what they buffer."""
        self._run(self.live, lambda: self._close(self.live, ClosingReason.REBALANCE, self._partition(which)))

    def lose(self, which: int) -> None:
        """Close one partition without a commit: another owner has it already."""
        self._run(self.live, lambda: self.live.lose(self._partition(which)))

    def fence(self) -> None:
        """Let another attempt take over; this one continues as a zombie."""
        self.zombies.append(self.live)
        self.live = self._started(self.live.successor())  # an attempt of the same generation

    def freeze(self, dies: int) -> None:
        """Freeze the next task that discards its predecessor's tokens, right before it does.

        Args:
            dies: the successor dies between its commit and ``publish``, before the frozen task resumes.
        """
        self._freezes = bool(dies)

    def before_discard(self, process: Process, partition: TopicPartition) -> None:
        """Fence a task that is to freeze before it discards its predecessor's tokens."""
        if self._freezes is None or process is not self.live:
            return
        dies, self._freezes = self._freezes, None
        self.judge.met["frozen in discard"] += 1
        self.judge.zombies_acted = True
        self.note(f"the task freezes in discard of {partition}, and another attempt takes over")
        self.fence()
        successor = self.live
        self._deliver(partition, 2)
        if dies and self.live is successor:
            successor.dies_in_publish = True
            self._run(successor, lambda: self._close(successor, ClosingReason.REBALANCE))
        self.note("the frozen task resumes")

    def alter(self, which: int, to: int) -> None:
        """Stop the connector and set the offset of a partition, as an operator does."""
        self._alter(self._partition(which), to)

    def reset(self, which: int) -> None:
        """Stop the connector and remove the offset of a partition, as an operator does."""
        self._alter(self._partition(which), None)

    def _alter(self, partition: TopicPartition, to: int | None) -> None:
        owner = self.live
        self._run(owner, lambda: self._close(owner, ClosingReason.STOP))
        if self.live is owner:
            self._run(owner, owner.worker.stop)
        committed = self.live.log.committed(partition)
        if self.live is not owner or (committed is not None and committed.tokens):
            self.note("refused: the commit is not published yet")
            self._replace(owner)
            return
        self.judge.acting([partition])
        if not self._has_moved_mark(partition, to):
            self._succeed()
            return
        self.source.produce_up_to(partition, to or 0)
        self.judge.altered(partition, to, self.see())
        self.generation += 1
        self.live = self._started(owner.successor(owner.log.altered(partition, to)))

    def _has_moved_mark(self, partition: TopicPartition, to: int | None) -> bool:
        if self.subject.alter is None:
            return True
        while True:
            met = self.faults.happened.total()
            try:
                self.subject.alter(self.destination, partition, to)
            except Crash:
                self.faults.restart()
            except ConnectException as error:
                if self.faults.happened.total() == met:
                    self.note(f"alter_offsets refuses: {error}")
                    return False
            else:
                return True

    def crash(self) -> None:
        """Kill the process without clean-up; another takes over."""
        self.faults.crash()
        self._replace_crashed(self.live)

    def fault(self, where: str, at: int, kind: str) -> None:
        """Inject a fault into a later operation."""
        self.faults.arm(Fault(where, at, FaultKind(kind)))

    # -- steps: zombies ----------------------------------------------------------------------------

    def zombie_deliver(self, which: int, count: int) -> None:
        """Deliver records to the zombie."""
        partition = self._partition(which)

        def deliver(zombie: Process) -> None:
            if partition in zombie.opened and not zombie.worker.pending:
                zombie.deliver(partition, self.source.read(partition, zombie.position(partition), count))

        self._as_zombie(deliver)

    def zombie_commit(self) -> None:
        """Let the zombie commit; the commit raises FencedException."""
        self._as_zombie(lambda zombie: zombie.commit())

    def zombie_tick(self, seconds: float) -> None:
        """Let time pass for the zombie, which does what is due."""
        self._as_zombie(lambda zombie: zombie.advance(seconds))

    def zombie_close(self) -> None:
        """Close the zombie, late."""

        def close(zombie: Process) -> None:
            self._close(zombie, ClosingReason.SHUTDOWN)
            zombie.worker.stop()
            self.zombies.remove(zombie)

        self._as_zombie(close)

    def _as_zombie(self, action: Callable[[Process], None]) -> None:
        if self.zombies:
            zombie = self.zombies[-1]
            self.judge.zombies_acted = True
            self._run(zombie, lambda: action(zombie))

    # -- the runtime ---------------------------------------------------------------------

    def _run(self, process: Process, action: Callable[[], object]) -> None:
        try:
            action()
        except Crash:
            self._replace_crashed(process)
        except FencedException:
            self._abandon(process)
        except StoreUnavailable:
            self.note("the commit log does not respond: the attempt stops, another takes over")
            self._abandon(process)

    def _abandon(self, process: Process) -> None:
        try:
            process.lose()
            process.worker.stop()
        except Crash:
            self._replace_crashed(process)
        else:
            self._replace(process)

    def _replace_crashed(self, process: Process) -> None:
        self.faults.restart()
        self.note("the process dies, another takes over" if process is self.live else "the zombie dies")
        self._replace(process)

    def _replace(self, process: Process) -> None:
        if process is self.live:
            self._succeed()
        elif process in self.zombies:
            self.zombies.remove(process)

    def _succeed(self) -> None:
        self.generation += 1
        self.live = self._started(self.live.successor())

    def _started(self, process: Process) -> Process:
        for _ in range(_MOST_STARTS):
            met = self.faults.happened.total()
            try:
                process.start()
            except Crash:
                self.faults.restart()
            except Exception as error:
                if self.faults.happened.total() == met:
                    raise KitError(
                        f"start failed although no fault was injected: {error!r}; check `config`"
                    ) from error
                process.worker.stop()
            else:
                return process
            process = process.successor()
        raise KitError(f"the task could not start in {_MOST_STARTS} attempts in a row")

    def _close(self, process: Process, reason: ClosingReason, *partitions: TopicPartition) -> None:
        self.faults.deadline = self.faults.clock.now() + PATIENCE
        try:
            process.revoke(*partitions, reason=reason, timeout=PATIENCE)
        finally:
            self.faults.deadline = None

    def _partition(self, which: int) -> TopicPartition:
        return self.subject.partitions[which % len(self.subject.partitions)]

    def _is_open(self, partition: TopicPartition) -> bool:
        return partition in self.live.worker.assignment()

    def _ended(self, partition: TopicPartition) -> str | None:
        for outcome in self.live.worker.outcomes():
            if outcome.partition == partition and outcome.failure:
                return "had failed"
            if outcome.partition == partition and outcome.moved_to is not None:
                return f"was rewound to offset {outcome.moved_to}"
        return None

    def _open(self, partition: TopicPartition) -> bool:
        if self._is_open(partition):
            return True
        if reason := self._ended(partition):
            self._restart(partition, reason)
        owner = self.live
        if not self._is_open(partition):
            self._run(owner, lambda: owner.assign(partition))
        return self.live is owner and self._is_open(partition)

    def _restart(self, partition: TopicPartition, reason: str) -> None:
        self.note(f"{partition} {reason}: a new generation starts")
        self.rebalance()

    def _note_offsets(self, batch: SinkRecords) -> None:
        offsets = batch.offsets.tolist()
        if len(set(offsets)) < len(offsets):
            self.note(f"the transform returns offsets {', '.join(map(str, offsets))}")

    def _deliver(self, partition: TopicPartition, count: int) -> None:
        if self.live.worker.pending:
            self._run(self.live, lambda: self.live.advance(self.live.worker.wait()))
        if self.live.worker.pending or not self._open(partition):
            return
        owner = self.live
        batch = self.source.read(partition, owner.position(partition), count)
        self._note_offsets(batch)
        self._run(owner, lambda: owner.deliver(partition, batch))

    def _recover(self) -> None:
        for _ in range(_MOST_RECOVERIES):
            owner = self.live
            for partition in self.subject.partitions:
                if self._open(partition):
                    self._read_to_the_end(owner, partition)
            outcomes = owner.worker.outcomes()
            self._run(owner, partial(self._close, owner, ClosingReason.SHUTDOWN))
            ended = [o for o in [*outcomes, *owner.worker.outcomes()] if o.failure or o.moved_to is not None]
            self._run(owner, owner.worker.stop)
            if self.live is owner and not ended:
                return
            self._succeed()
        for outcome in ended:
            cause = (
                f"{outcome.failure.kind}: {outcome.failure.message.removeprefix(f'{outcome.failure.kind}: ')}"
                if outcome.failure
                else f"open of each new task rewinds it to offset {outcome.moved_to}"
            )
            self.judge.blame(f"recovery of {outcome.partition} fails although no fault is injected: {cause}")
        self._fail_if_wrong()

    def _discard_prepared(self) -> None:
        if not self.live.log.noted:
            return
        self._succeed()
        for partition in self.subject.partitions:
            self._open(partition)
        self._run(self.live, lambda: self._close(self.live, ClosingReason.SHUTDOWN))
        self._run(self.live, self.live.worker.stop)

    def _read_to_the_end(self, owner: Process, partition: TopicPartition) -> None:
        waiting = self.source.waiting(partition, owner.position(partition))
        if waiting:
            batch = self.source.read(partition, owner.position(partition), waiting)
            self._run(owner, lambda: owner.deliver(partition, batch))
        for _ in range(_MOST_ATTEMPTS):
            if owner is not self.live or not owner.worker.pending:
                return
            self._run(owner, lambda: owner.advance(owner.worker.wait()))
        self.judge.blame(
            f"put of {partition} keeps raising RetriableException although no more faults are injected"
        )
        self._fail_if_wrong()

    # -- judging -----------------------------------------------------------------------------------

    def see(self) -> Seen:
        """Return the records that readers of the destination can see."""
        return self.judge.read(self._read_back())

    def _read_back(self) -> Sequence[Row] | Mapping[Any, Any]:
        try:
            found = self.subject.read_back(self.destination)
            rows = found if isinstance(found, Mapping) else list(found)
        except Exception as error:
            raise KitError(
                f"read_back raised {error!r}; it must work at any time, also after a crash"
            ) from error
        self.has_seen_rows = self.has_seen_rows or bool(rows)
        return rows

    def _judge_now(self) -> None:
        self.judge.lost_responses = self.faults.happened[DESTINATION, FaultKind.LOST_RESPONSE]
        if self.judge.problem is None:
            self.judge.check(self.see(), self.live.log.offsets)
        self._fail_if_wrong()

    def _fail_if_wrong(self) -> None:
        if self.judge.problem is not None:
            self.end()
            raise SinkContractError(self.judge.problem, self.story, self.steps)

    def note(self, what: str) -> None:
        """Add to the sentence of the current step."""
        if self.story and what not in self.story[-1]:
            self.story[-1] += f"; {what}"
