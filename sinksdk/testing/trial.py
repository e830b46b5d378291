"""One schedule of a sink under test, step by step. Needs no Hypothesis: what fails here fails in a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic

from sinksdk.context import ClosingReason
from sinksdk.errors import ConnectException, FencedException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.store import StoreUnavailable
from sinksdk.testing.contract import HIDDEN, D, KitError, Row, SinkContractError, Step, Subject, ordinal
from sinksdk.testing.faults import COMMIT_LOG, DESTINATION, TASK, Crash, Fault, FaultKind, FaultPlan
from sinksdk.testing.judge import TRANSFORMS, EndlessSource, Judge, Seen
from sinksdk.testing.keyed import KeyedJudge
from sinksdk.testing.process import Process

__tracebackhide__ = HIDDEN

END: Final = "in the end: no more faults, zombies close late, a new owner reads everything and closes"
_OPERATIONS: Final = {
    DESTINATION: "operation of the destination",
    COMMIT_LOG: "write of the commit log",
    TASK: "call of the task",
}
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
        f"the sink's task begins anew, after a transform: {_transforms(TRANSFORMS[number])}"
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
    "fence": lambda: "another attempt takes over, this one goes on as a zombie",
    "freeze": lambda dies: (
        "the next task that discards a predecessor's tokens is frozen right before it does, and wakes up "
        f"when its successor has {'committed, and died before it published' if dies else 'put records'}"
    ),
    "alter": lambda partition, to: (
        f"an operator stops the connector and sets the offset of {partition} to {to}"
    ),
    "reset": lambda partition: f"an operator stops the connector and removes the offset of {partition}",
    "crash": lambda: "a crash",
    "fault": lambda where, at, kind: f"the {ordinal(at)} {_OPERATIONS.get(where, where)} will meet: {kind}",
    "zombie_deliver": lambda partition, count: f"the zombie is given {_records(count)} of {partition}",
    "zombie_commit": lambda: "the zombie tries to commit",
    "zombie_tick": lambda seconds: f"{seconds} s pass for the zombie",
    "zombie_close": lambda: "the zombie is asked to close, late",
}

STEPS: Final = tuple(_SENTENCES)
"""Names of the steps there are, besides an author's own."""


def _transforms(times: Sequence[int]) -> str:
    shown = ", ".join(map(str, times))
    return f"of its records, in turn, it makes {shown}{' and so on' if len(times) > 1 else ' each'}"


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


PATIENCE: Final = 60.0
"""Seconds the runtime waits for a closing task; less than a slow operation takes."""
_MOST_STARTS: Final = 20
_MOST_RECOVERIES: Final = 3
_MOST_ATTEMPTS: Final = 100


class Trial(Generic[D]):
    """Runs one attempt at the task after the other, as the runtime would, and judges after each step."""

    # More than ten attributes: an author's own steps read them.

    def __init__(self, subject: Subject[D], exercised: Counter[str] | None = None) -> None:
        self.subject = subject
        self.exercised = Counter[str]() if exercised is None else exercised
        self.faults = FaultPlan()
        self.destination = subject.destination(self.faults)
        self.source = EndlessSource(subject.partitions, subject.record)
        self.has_seen_rows = False
        """Whether anything could ever be read back."""
        promise = subject.capabilities
        is_keyed = isinstance(self._looked(), Mapping)
        self.judge = (
            KeyedJudge(promise, self.source, subject.row) if is_keyed else Judge(promise, self.source)
        )
        self.steps: list[Step] = []
        self.story: list[str] = []
        """What happened, a sentence for each step."""
        self._is_over = False
        self._freezes: bool | None = None
        """Whether the successor of the next task that is frozen dies; None: no task is frozen."""
        self._poisoned = 0
        self.generation = 1
        """What ``context.generation()`` says in the attempts that begin now."""
        self.zombies: list[Process] = []
        """Attempts that were fenced and do not know it yet, oldest first."""
        self.live: Process = self._started(Process(self))
        """The attempt that owns the task."""

    # -- running steps -----------------------------------------------------------------------------

    def step(self, name: str, *arguments: Any) -> None:
        """Run a step and check the invariants after it. Raises SinkContractError if one is broken."""
        if self._is_over:
            return
        own = self.subject.steps.get(name)
        method = getattr(self, name, None) if name in STEPS else None
        if own is None and method is None:
            known = ", ".join(sorted({*STEPS, *self.subject.steps}))
            raise KitError(f"there is no step {name!r}; there are {known}")
        self.steps.append((name, *arguments))
        self.exercised[name] += 1
        self.story.append(_sentence(name, arguments, self.subject.partitions))
        before = self.faults.asked.total()
        if own is not None:
            own(self, *arguments)
        elif method is not None:
            method(*arguments)
        if own is not None or self.faults.asked.total() != before:  # else nothing was called
            self._judge_now()

    def finish(self) -> None:
        """No more faults: zombies wake up late, a new owner reads everything, closes, and nothing is missing.

        Raises:
            SinkContractError: something is.
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
        self._discard_what_is_noted()
        committed = self.live.log.offsets
        self.judge.look(self.see(), committed)
        leftovers = self.subject.leftovers_of(self.destination)
        self.judge.met["leftovers looked at"] += leftovers is not None
        self.judge.look_at_the_end(committed, self.live.log.noted, leftovers or ())
        self._fail_if_wrong()
        self.end()

    def end(self) -> None:
        """Count what happened and clean up; once."""
        if self._is_over:
            return
        self._is_over = True
        self.exercised["cases"] += 1
        self.exercised["steps"] += len(self.steps)
        self.exercised["destination operations"] += self.faults.asked[DESTINATION]
        self.exercised.update(self.judge.met)
        self.exercised.update(self.source.met)
        for (where, kind), times in self.faults.happened.items():
            self.exercised[f"{where}: {kind}"] += times
        self.subject.clean_up(self.destination)

    # -- steps: the owner --------------------------------------------------------------------------

    def deliver(self, which: int, count: int) -> None:
        """Put the next records of a partition; open it where it is not."""
        self._deliver(self._partition(which), count)

    def read_range(self, which: int, count: int) -> None:
        """Read a range of so many offsets to its end: a closing commit of all of it, then close."""
        partition = self._partition(which)
        if self._is_open(partition):
            self.revoke(which)
        if reason := self._ended(partition):
            self._begin_anew(partition, reason)
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
                self.judge.look_at_range(partition, offsets, batch, owner.floor(partition))

    def transform(self, number: int) -> None:
        """The task begins anew after a transform that drops records and makes several of others."""
        self.source.transform = TRANSFORMS[number % len(TRANSFORMS)]
        self.rebalance()

    def skip(self, which: int, count: int) -> None:
        """Offsets without records, as after compaction."""
        self.source.skip(self._partition(which), count)

    def poison(self, which: int, before: int = 0, after: int = 0) -> None:
        """A record that cannot be delivered, put with all that wait before it and new ones around it."""
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
        """A periodic commit of everything that is open."""
        self._run(self.live, self.live.commit)

    def tick(self, seconds: float) -> None:
        """Time passes: redeliveries and periodic commits fall due."""
        self._run(self.live, lambda: self.live.advance(seconds))

    def rebalance(self) -> None:
        """All partitions are closed with a commit and opened by a new task."""
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
        """One partition is closed with a commit; the others stay open, and buffered."""
        self._run(self.live, lambda: self._close(self.live, ClosingReason.REBALANCE, self._partition(which)))

    def lose(self, which: int) -> None:
        """One partition already belongs to another owner: close, no commit."""
        self._run(self.live, lambda: self.live.lose(self._partition(which)))

    def fence(self) -> None:
        """Another attempt takes over; this one continues, and its writes have no effect."""
        self.zombies.append(self.live)
        self.live = self._started(self.live.successor())  # of the same generation

    def freeze(self, dies: int) -> None:
        """The next task that opens a partition with a predecessor's tokens is frozen while it discards them.

        Args:
            dies: whether its successor dies between its commit and ``publish``, before the task wakes up.
        """
        self._freezes = bool(dies)

    def frozen(self, process: Process, partition: TopicPartition) -> None:
        """Called before a task discards a predecessor's tokens. A frozen one goes on as a zombie."""
        if self._freezes is None or process is not self.live:
            return
        dies, self._freezes = self._freezes, None
        self.judge.met["frozen in discard"] += 1
        self.judge.zombies_acted = True
        self.note(f"the task is frozen in discard of {partition}, and another attempt takes over")
        self.fence()
        successor = self.live
        self._deliver(partition, 2)
        if dies and self.live is successor:
            successor.dies_in_publish = True
            self._run(successor, lambda: self._close(successor, ClosingReason.REBALANCE))
        self.note("the frozen task wakes up")

    def alter(self, which: int, to: int) -> None:
        """An operator stops the connector, and has a partition read again from an offset, or go on at one."""
        self._alter(self._partition(which), to)

    def reset(self, which: int) -> None:
        """An operator stops the connector, and removes a partition's offset."""
        self._alter(self._partition(which), None)

    def _alter(self, partition: TopicPartition, to: int | None) -> None:
        """Where something is not published yet the operator is refused."""
        owner = self.live
        self._run(owner, lambda: self._close(owner, ClosingReason.STOP))
        if self.live is owner:
            self._run(owner, owner.worker.stop)
        committed = self.live.log.committed(partition)
        if self.live is not owner or (committed is not None and committed.tokens):
            self.note("which is refused: what is committed is not published yet")
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
        """Whether the connector's ``alter_offsets`` has returned; after a fault the operator tries again."""
        if self.subject.alter is None:
            return True
        while True:
            met = self.faults.happened.total()
            try:
                self.subject.alter(self.destination, partition, to)
            except Crash:
                self.faults.bury()
            except ConnectException as error:
                if self.faults.happened.total() == met:
                    self.note(f"alter_offsets refuses: {error}")
                    return False
            else:
                return True

    def crash(self) -> None:
        """The process dies, no clean-up code runs; another takes over."""
        self.faults.crash()
        self._bury(self.live)

    def fault(self, where: str, at: int, kind: str) -> None:
        """Let a later operation fail."""
        self.faults.arm(Fault(where, at, FaultKind(kind)))

    # -- steps: zombies ----------------------------------------------------------------------------

    def zombie_deliver(self, which: int, count: int) -> None:
        """The zombie continues to read."""
        partition = self._partition(which)

        def go_on(zombie: Process) -> None:
            if partition in zombie.opened and not zombie.worker.pending:
                zombie.deliver(partition, self.source.read(partition, zombie.position(partition), count))

        self._as_zombie(go_on)

    def zombie_commit(self) -> None:
        """The zombie commits; the commit raises FencedException."""
        self._as_zombie(lambda zombie: zombie.commit())

    def zombie_tick(self, seconds: float) -> None:
        """Time passes, and the zombie runs what is due."""
        self._as_zombie(lambda zombie: zombie.advance(seconds))

    def zombie_close(self) -> None:
        """The zombie closes, late."""

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

    # -- what the runtime does ---------------------------------------------------------------------

    def _run(self, process: Process, action: Callable[[], object]) -> None:
        """Whatever ends an attempt ends it alone; for the owner, another one takes over."""
        try:
            action()
        except Crash:
            self._bury(process)
        except FencedException:
            self._abandon(process)
        except StoreUnavailable:
            self.note("the commit log does not answer: the attempt is over, another takes over")
            self._abandon(process)

    def _abandon(self, process: Process) -> None:
        """A write failed: close what is open, commit nothing, stop."""
        try:
            process.lose()
            process.worker.stop()
        except Crash:
            self._bury(process)
        else:
            self._replace(process)

    def _bury(self, process: Process) -> None:
        self.faults.bury()
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
        """An attempt that has started; one whose start fails is followed by another."""
        for _ in range(_MOST_STARTS):
            met = self.faults.happened.total()
            try:
                process.start()
            except Crash:
                self.faults.bury()
            except Exception as error:
                if self.faults.happened.total() == met:
                    raise KitError(
                        f"start failed and no fault was injected: {error!r}; is `config` what the task needs?"
                    ) from error
                process.worker.stop()
            else:
                return process
            process = process.successor()
        raise KitError(f"{_MOST_STARTS} attempts in a row could not start")

    def _close(self, process: Process, reason: ClosingReason, *partitions: TopicPartition) -> None:
        """Closing commit and close, of all or of some; killed at the deadline."""
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
        """Why a partition is not read any more in this generation."""
        for outcome in self.live.worker.outcomes():
            if outcome.partition == partition and outcome.failure:
                return "had failed"
            if outcome.partition == partition and outcome.moved_to is not None:
                return f"was moved back to offset {outcome.moved_to}"
        return None

    def _open(self, partition: TopicPartition) -> bool:
        """Open a partition; where it ended, in a new generation. False when that did not succeed."""
        if self._is_open(partition):
            return True
        if reason := self._ended(partition):
            self._begin_anew(partition, reason)
        owner = self.live
        if not self._is_open(partition):
            self._run(owner, lambda: owner.assign(partition))
        return self.live is owner and self._is_open(partition)

    def _begin_anew(self, partition: TopicPartition, reason: str) -> None:
        self.note(f"{partition} {reason}: a new generation begins")
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
        """A new owner opens everything, reads to the end and closes, until nothing fails any more."""
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
                f"{outcome.failure.kind}: {outcome.failure.message}"
                if outcome.failure
                else f"each new task asks in open to go back to offset {outcome.moved_to}"
            )
            self.judge.blame(f"{outcome.partition} cannot be recovered: {cause}")
        self._fail_if_wrong()

    def _discard_what_is_noted(self) -> None:
        """What the last owner noted and did not commit is for one more to discard."""
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
            f"put of {partition} asks to be tried again and again, and no fault is injected any more"
        )
        self._fail_if_wrong()

    # -- judging -----------------------------------------------------------------------------------

    def see(self) -> Seen:
        """What readers of the destination see now."""
        return self.judge.read(self._looked())

    def _looked(self) -> Sequence[Row] | Mapping[Any, Any]:
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
        self.judge.lost_answers = self.faults.happened[DESTINATION, FaultKind.LOST_ANSWER]
        if self.judge.problem is None:
            self.judge.look(self.see(), self.live.log.offsets)
        self._fail_if_wrong()

    def _fail_if_wrong(self) -> None:
        if self.judge.problem is not None:
            self.end()
            raise SinkContractError(self.judge.problem, self.story, self.steps)

    def note(self, what: str) -> None:
        """Add to the sentence of the step that is under way."""
        if self.story and what not in self.story[-1]:
            self.story[-1] += f"; {what}"
