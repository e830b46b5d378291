"""Sinks that check how the engine calls them, and a model of the world outside of them.

Each sink checks in every call what a sink may rely on; :class:`World` decides what may be visible. Faults are
planned beforehand, per method, and counted when they happen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from sinksdk import (
    ClosingReason,
    ConnectException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecord,
    SinkRecords,
    SinkTask,
    Token,
    TopicPartition,
)
from sinksdk.store import StoreUnavailable
from sinksdk.store.records import TaskRecord
from sinksdk.testing import MemoryCommitLog

PARTITIONS = tuple(TopicPartition("flights", partition) for partition in range(3))
STRANGER = TopicPartition("strangers", 0)

FAULTS: Mapping[str, Sequence[str]] = {
    "open": ("error", "forward", "back", "fail"),
    "put": ("retriable", "partly", "error", "move", "fail", "request"),
    "pre_commit": (
        *("error", "retriable", "None", "beyond", "below", "stranger", "foreign token"),
        *("request", "move", "fail"),
    ),
    "publish": ("retriable", "error"),
    "discard": ("error",),
    "close": ("error",),
    "write": ("lost before", "lost after"),
}

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Violation(BaseException):
    """The engine broke its contract. A BaseException, because the engine handles a sink's Exceptions."""


def demand(promise: bool, message: str) -> None:
    if not promise:
        raise Violation(message)


class World:
    """The source, what readers see, and planned faults.

    Args:
        source: offsets of each partition's records, ascending, with gaps.
        faults: faults of the next calls of each method; None: the call succeeds.
        happened: counts the faults.
    """

    def __init__(
        self,
        source: Mapping[TopicPartition, Sequence[int]],
        faults: Mapping[str, list[str | None]],
        happened: Counter[str],
    ) -> None:
        self.source = source
        self.faults = {method: list(reversed(plan)) for method, plan in faults.items()}
        self.happened = happened
        self.begun: dict[str, tuple[TopicPartition, list[int]]] = {}
        self.visible: list[str] = []
        self.undone: set[str] = set()
        self.written: dict[TopicPartition, set[int]] = defaultdict(set)
        self.durable = TaskRecord(generation=1)
        self.ends: Mapping[TopicPartition, int | None] = {}
        self.moved_to: dict[TopicPartition, int] = {}
        self.may_close: Collection[ClosingReason | None] = ()

    def take(self, method: str) -> str | None:
        plan = self.faults.get(method)
        fault = plan.pop() if plan else None
        if fault is not None:
            self.happened[f"{method}: {fault}"] += 1
        return fault

    def raise_if(self, fault: str | None) -> None:
        if fault == "retriable":
            raise RetriableException("busy")
        if fault == "error":
            raise ConnectException("broken")

    def rows(self, partition: TopicPartition, start: int, end: int | None = None) -> list[int]:
        return [
            offset for offset in self.source[partition] if start <= offset and (end is None or offset < end)
        ]

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {entry.topic_partition: entry.as_offset() for entry in self.durable.entries}

    def saved(self, record: TaskRecord) -> None:
        """Check that commits never go back and that unpublished tokens are never overwritten."""
        before, self.durable = self.committed(), record
        after = self.committed()
        for partition, old in before.items():
            went_back = after[partition].offset < old.offset
            asked_for = after[partition].offset == self.moved_to.get(partition)
            demand(not went_back or asked_for, "a commit went back")
            waiting = {token.id for token in old.tokens} - set(self.visible)
            kept = {token.id for token in after[partition].tokens}
            demand(waiting <= kept, f"{waiting} were overwritten before they were published")

    def committed_tokens(self) -> set[str]:
        return {token.id for offset in self.committed().values() for token in offset.tokens}


def watched(log: MemoryCommitLog, world: World) -> MemoryCommitLog:
    """Return a commit log that reports its writes to the world and sometimes loses the response."""

    def saving(record: TaskRecord) -> None:
        fault = None if log.is_fenced else world.take("write")
        if fault == "lost before":
            raise StoreUnavailable("no answer")
        # A copy of the log, for a successor, has this function as its own _save.
        type(log)._save(log, record)
        world.saved(log.saved)
        if fault == "lost after":
            raise StoreUnavailable("no answer")

    log._save = saving
    return log


class ModelSink(SinkTask):
    """Checks every call; subclasses define how records become durable."""

    kind: ClassVar[str]

    def __init__(self, world: World) -> None:
        self.world = world
        self.opened: set[TopicPartition] = set()
        self.accepted: dict[TopicPartition, list[int]] = {}
        self.begin: dict[TopicPartition, int] = {}
        self.stops = 0

    # -- calls ---------------------------------------------------------------------------------------

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self.check_not_closing()
        demand(not self.opened & set(partitions), "opened twice")
        for partition in partitions:
            committed = self.context.committed(partition)
            self.accepted[partition] = []
            self.begin[partition] = committed.offset if committed else 0
        fault = self.world.take("open")
        self.world.raise_if(fault)
        self.opened |= set(partitions)
        for partition in partitions:
            self.request(fault, partition)
            if fault in ("forward", "back"):
                self.move(partition, fault)

    def put(self, records: SinkRecords) -> None:
        self.check_not_closing()
        partition = records.partition
        demand(partition in self.opened, "put after close")
        fault = self.world.take("put")
        self.world.raise_if(fault)
        offsets = records.arrow.column("offset").to_pylist()
        rest = self.world.rows(partition, self.position(partition))
        demand(offsets == rest[: len(offsets)], "records are missing, repeated or out of order")
        taken = len(offsets) // 2 if fault == "partly" else len(offsets)
        if taken:
            self.keep(partition, offsets[:taken])
            self.accepted[partition] += offsets[:taken]
        self.request(fault, partition)
        if fault == "partly":
            raise RetriableException("busy", accepted=taken)

    def pre_commit(self, offsets: Offsets) -> Offsets:
        reason = self.context.closing_reason()
        demand(self.context.is_closing() == (reason is not None), "is_closing without a reason")
        demand(reason in self.world.may_close, f"closing reason {reason} here")
        demand(bool(offsets), "pre_commit of nothing")
        for partition, offset in offsets.items():
            demand(partition in self.opened, "pre_commit after close")
            demand(offset.offset == self.position(partition), "offered what was not accepted")
        fault = self.world.take("pre_commit")
        self.world.raise_if(fault)
        nonsense = self.nonsense(fault, offsets)
        if nonsense is not False:
            return nonsense
        for partition in offsets:
            self.request(fault, partition)
        answer = self.answer(offsets)
        demand(self.context.is_closing() == (reason is not None), "is_closing changed inside pre_commit")
        return answer

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self.check_not_closing()
        committed = self.world.committed()[partition]
        demand(list(tokens) == list(committed.tokens), "published what is not committed")
        self.world.raise_if(self.world.take("publish"))
        self.world.visible += [token.id for token in tokens if token.id not in self.world.visible]

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self.check_not_closing()
        ids = {token.id for token in tokens}
        demand(bool(ids), "discarded nothing")
        demand(not ids & {*self.world.visible, *self.world.committed_tokens()}, "discarded what is committed")
        demand(
            {self.world.begun[token][0] for token in ids} == {partition}, "discarded for another partition"
        )
        self.world.raise_if(self.world.take("discard"))
        self.world.undone |= ids

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self.check_not_closing()
        demand(bool(partitions), "closed nothing")
        demand(set(partitions) <= self.opened, "closed what is not open")
        demand(not set(partitions) & self.context.assignment(), "assigned inside close")
        self.opened -= set(partitions)
        for partition in partitions:
            self.forget(partition)
        self.world.raise_if(self.world.take("close"))

    def stop(self) -> None:
        self.check_not_closing()
        demand(not self.opened, "stopped with open partitions")
        self.stops += 1

    # -- what they need ------------------------------------------------------------------------------

    def check_not_closing(self) -> None:
        demand(not self.context.is_closing(), "is_closing outside of pre_commit")
        demand(self.context.closing_reason() is None, "a closing reason outside of pre_commit")

    def position(self, partition: TopicPartition) -> int:
        accepted = self.accepted[partition]
        return accepted[-1] + 1 if accepted else self.begin[partition]

    def request(self, fault: str | None, partition: TopicPartition) -> None:
        if fault == "request":
            self.context.request_commit()
        elif fault == "move":
            self.context.offset({partition: 1_000_000})
        elif fault == "fail":
            self.context.fail(partition, ConnectException("given up"))

    def nonsense(self, fault: str | None, offsets: Offsets) -> object:
        """Return an invalid result if the fault demands one, else False."""
        if fault == "None":
            return None
        if fault == "beyond":
            return {p: OffsetAndMetadata(offset.offset + 1) for p, offset in offsets.items()}
        if fault == "below":
            return dict.fromkeys(offsets, OffsetAndMetadata(-1, "back"))
        if fault == "stranger":
            return {STRANGER: OffsetAndMetadata(1)}
        if fault == "foreign token":
            return {p: OffsetAndMetadata(offset.offset, publish=["foreign"]) for p, offset in offsets.items()}
        return False

    def move(self, partition: TopicPartition, where: str) -> None:
        """Request the present position; a sink with offsets of its own overrides this method."""
        self.context.offset({partition: self.begin[partition]})

    def keep(self, partition: TopicPartition, offsets: list[int]) -> None:
        raise NotImplementedError

    def answer(self, offsets: Offsets) -> Offsets:
        raise NotImplementedError

    def forget(self, partition: TopicPartition) -> None:
        raise NotImplementedError

    @staticmethod
    def check(world: World) -> None:
        raise NotImplementedError


class Buffering(ModelSink):
    """Writes batches of four records at once, and a shorter batch when it is asked to commit: at least once."""

    kind = "buffering"
    batch = 4

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.buffered: dict[TopicPartition, list[int]] = defaultdict(list)

    def move(self, partition: TopicPartition, where: str) -> None:
        """Pretend that the destination already has the next two records, or has only the first two."""
        begin, end = self.begin[partition], self.world.ends.get(partition)
        if where == "forward":
            has = self.world.rows(partition, begin, end)[:2]
            self.world.written[partition] |= set(has)
        else:
            has = self.world.rows(partition, 0, begin)[:2]
        if has:
            self.begin[partition] = has[-1] + 1
            self.world.moved_to[partition] = self.begin[partition]
            self.world.happened[f"moved {where}"] += 1
            self.context.offset({partition: self.begin[partition]})

    def keep(self, partition: TopicPartition, offsets: list[int]) -> None:
        self.buffered[partition] += offsets

    def answer(self, offsets: Offsets) -> Offsets:
        durable = {}
        for partition in offsets:
            rows = self.buffered[partition]
            count = len(rows) if self.context.is_closing() else len(rows) // self.batch * self.batch
            if count:
                self.world.written[partition] |= set(rows[:count])
                durable[partition] = OffsetAndMetadata(rows[count - 1] + 1)
                del rows[:count]
        return durable

    def forget(self, partition: TopicPartition) -> None:
        self.buffered.pop(partition, None)

    @staticmethod
    def check(world: World) -> None:
        for partition, offset in world.committed().items():
            lost = set(world.rows(partition, 0, offset.offset)) - world.written[partition]
            assert not lost, f"{lost} of {partition} are committed and were never written"


class TwoPhase(ModelSink):
    """Files prepared before their first record and published after their commit: exactly once."""

    kind = "two-phase"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.files: dict[TopicPartition, Token] = {}

    def keep(self, partition: TopicPartition, offsets: list[int]) -> None:
        if partition not in self.files:
            token = Token(f"upload-{len(self.world.begun)}")
            self.world.begun[token.id] = (partition, [])
            self.context.prepared({partition: [token]})
            self.files[partition] = token
        self.world.begun[self.files[partition].id][1].extend(offsets)

    def answer(self, offsets: Offsets) -> Offsets:
        return {
            partition: OffsetAndMetadata(self.position(partition), publish=[self.files.pop(partition)])
            for partition in offsets
            if partition in self.files
        }

    def forget(self, partition: TopicPartition) -> None:
        self.files.pop(partition, None)

    @staticmethod
    def check(world: World) -> None:
        committed = world.committed()
        for partition in PARTITIONS:
            tokens = [token for token in world.visible if world.begun[token][0] == partition]
            offset = committed.get(partition, OffsetAndMetadata(0))
            waiting = [token.id for token in offset.tokens if token.id not in tokens]
            rows = [row for token in (*tokens, *waiting) for row in world.begun[token][1]]
            assert rows == world.rows(partition, 0, offset.offset), "not exactly once"
        assert not world.undone & {*world.visible, *world.committed_tokens()}


def batch(partition: TopicPartition, offsets: Sequence[int]) -> SinkRecords:
    return SinkRecords.of(partition, [SinkRecord(*partition, offset=offset) for offset in offsets])
