"""Test doubles in memory: a commit log, a task's context, a destination and an origin."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Self

from sinksdk.context import ClosingReason, ErrantRecordReporter, SinkTaskContext
from sinksdk.errors import ConnectException, FencedException, seconds_of
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition, as_token
from sinksdk.records import SinkRecord
from sinksdk.store.ledger import Ledger
from sinksdk.store.records import PartitionCommit, TaskRecord, by_partition
from sinksdk.testing.faults import DESTINATION, ORIGIN, FaultPlan


class MemoryCommitLog(Ledger):
    """The commit log of one attempt at a task, in memory."""

    def __init__(self, committed: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        entries = tuple(PartitionCommit.of(p, offset, 0) for p, offset in (committed or {}).items())
        self._begin(TaskRecord(generation=1, attempt=1, entries=entries))

    def _begin(self, record: TaskRecord) -> None:
        super().__init__(record, {})
        self.saved = record
        self.is_fenced = False

    def succeed(self) -> Self:
        """Fence this log and return the successor's, which starts from the saved state, as after a crash."""
        self.is_fenced = True
        successor = copy.copy(self)
        after = self.saved.model_copy(update={"attempt": self.saved.attempt + 1})
        successor._begin(after)  # noqa: SLF001 - same class
        return successor

    def altered(self, partition: TopicPartition, offset: int | None) -> Self:
        """Return the log of a successor for which an operator altered an offset; None removes the commit."""
        successor = self.succeed()
        entries = {entry.topic_partition: entry for entry in self.saved.entries}
        entries.pop(partition, None)
        if offset is not None:
            entries[partition] = PartitionCommit.of(
                partition, OffsetAndMetadata(offset), self.saved.generation
            )
        after = successor.saved.model_copy(update={"entries": tuple(entries.values())})
        successor._begin(after)  # noqa: SLF001 - same class
        return successor

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Durable commits, each with the tokens that are still to be published."""
        return {entry.topic_partition: entry.as_offset() for entry in self.saved.entries}

    @property
    def noted(self) -> dict[TopicPartition, list[str]]:
        """Ids of durable tokens that are prepared and in no commit, by partition."""
        return {p: list(tokens) for p, tokens in by_partition(self.saved.prepared).items()}

    def _save(self, record: TaskRecord) -> None:
        if self.is_fenced:
            raise FencedException("a newer attempt owns this task")
        # Everything passes through JSON, as it does in a store.
        self.saved = TaskRecord.model_validate_json(json.dumps(record.as_json()))


class FakeContext(SinkTaskContext, ErrantRecordReporter):
    """A task's context that returns values that a test sets, and records the task's requests.

    ::

        task.initialize(context := FakeContext([tp]))
        context.closing = ClosingReason.REBALANCE
        task.pre_commit({tp: OffsetAndMetadata(3)})

    Args:
        assignment: the open partitions.
        committed: the result of :meth:`committed`.
        configs: the result of :meth:`configs`.
        generation: the result of :meth:`generation`.
        tolerates_errors: whether errant records are tolerated (``errors.tolerance``).
    """

    # More than ten attributes: one for each value or request of a task.

    def __init__(
        self,
        assignment: Collection[TopicPartition] = (),
        *,
        committed: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        configs: Mapping[str, str] | None = None,
        generation: int = 1,
        tolerates_errors: bool = True,
    ) -> None:
        self.open = set(assignment)
        self.commits = dict(committed or {})
        self.closing: ClosingReason | None = None
        """Makes ``is_closing()`` return True unless it is None."""
        self.seconds_left: float | None = None
        """The value of :meth:`deadline` while closing."""
        self.tokens: dict[TopicPartition, list[Token]] = defaultdict(list)
        self.moves: dict[TopicPartition, int] = {}
        """Offsets that the task requested."""
        self.timeouts: list[float] = []
        self.requested_commits = 0
        self.failures: dict[TopicPartition, BaseException] = {}
        """Errors of the partitions that the task failed."""
        self.counts: dict[TopicPartition, Counter[str]] = defaultdict(Counter)
        self.reported: list[tuple[SinkRecord, BaseException]] = []
        """Errant records that the task reported, with their errors."""
        self._configs = dict(configs or {})
        self._generation = generation
        self._tolerates_errors = tolerates_errors

    def is_closing(self) -> bool:
        return self.closing is not None

    def closing_reason(self) -> ClosingReason | None:
        return self.closing

    def deadline(self) -> float | None:
        return self.seconds_left if self.is_closing() else None

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.open)

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        return self.commits.get(partition)

    def configs(self) -> Mapping[str, str]:
        return self._configs

    def generation(self) -> int:
        return self._generation

    def prepared(self, tokens: Mapping[TopicPartition, Sequence[Token | str]]) -> None:
        closed = sorted(set(tokens) - self.open)
        if closed:
            raise ConnectException(
                f"context.prepared was called for partitions that are not open: {', '.join(map(str, closed))}"
            )
        for partition, given in tokens.items():
            self.tokens[partition] += map(as_token, given)

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.moves.update(offsets)

    def timeout(self, seconds: float) -> None:
        self.timeouts.append(seconds_of(seconds))

    def request_commit(self) -> None:
        self.requested_commits += 1

    def fail(self, partition: TopicPartition, error: BaseException) -> None:
        self.failures.setdefault(partition, error)

    def count(self, partition: TopicPartition, **amounts: int) -> None:
        self.counts[partition].update(amounts)

    def errant_record_reporter(self) -> ErrantRecordReporter:
        return self

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        self.reported.append((record, error))
        if not self._tolerates_errors:
            raise ConnectException(
                f"{record.topic_partition} at offset {record.offset}: bad records are not tolerated"
            ) from error
        return reported()


def reported() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done


class MemoryDestination:
    """A destination in memory: what readers see (:attr:`visible`) and do not see yet (:attr:`staged`).

    The fault plan runs every operation, which is atomic. Use the operations of your system: objects that are
    overwritten (:meth:`write`), logs (:meth:`append`), rows with keys (:meth:`upsert`), uploads or
    transactions (:meth:`begin`, :meth:`fill`, :meth:`publish`, :meth:`discard`).
    """

    def __init__(self, faults: FaultPlan | None = None) -> None:
        self.faults = faults or FaultPlan()
        self.visible: dict[str, list[SinkRecord]] = {}
        """Artefacts that readers see, by name, in the order in which they appeared."""
        self.staged: dict[str, list[SinkRecord]] = {}
        """Artefacts that are neither published nor discarded."""
        self.marks: dict[str, int] = {}
        """Offsets that sinks keep at the destination, by artefact."""
        self._numbers = itertools.count()

    def write(self, name: str, records: Iterable[SinkRecord]) -> None:
        """Make an artefact visible, instead of one of the same name."""
        rows = list(records)
        self.faults.run(DESTINATION, lambda: self.visible.__setitem__(name, rows))

    def append(self, name: str, records: Iterable[SinkRecord], mark: int | None = None) -> None:
        """Append to a visible artefact and set its mark in one operation; create it if it is missing."""
        rows = list(records)

        def effect() -> None:
            self.visible.setdefault(name, []).extend(rows)
            if mark is not None:
                self.marks[name] = mark

        self.faults.run(DESTINATION, effect)

    def move(self, name: str, mark: int | None) -> None:
        """Set or remove the mark of an artefact, as a connector's ``alter_offsets`` does."""

        def effect() -> None:
            self.marks.pop(name, None)
            if mark is not None:
                self.marks[name] = mark

        self.faults.run(DESTINATION, effect)

    def upsert(self, name: str, records: Iterable[SinkRecord]) -> None:
        """Add to a visible artefact; records replace those with the same coordinates.

        Pass several records with the same coordinates, which a transform may create, in one call.
        """
        rows = list(records)

        def effect() -> None:
            before = _by_coordinates(self.visible.get(name, []))
            merged = before | _by_coordinates(rows)
            self.visible[name] = list(itertools.chain.from_iterable(merged.values()))

        self.faults.run(DESTINATION, effect)

    def begin(self) -> str:
        """Begin an artefact that readers do not see, and return its unique id."""

        def effect() -> str:
            name = f"staged-{next(self._numbers)}"
            self.staged[name] = []
            return name

        return self.faults.run(DESTINATION, effect)

    def fill(self, name: str, records: Iterable[SinkRecord]) -> None:
        """Set the content of a begun artefact. Raises ConnectException if it is missing."""
        rows = list(records)

        def effect() -> None:
            if name not in self.staged:
                raise ConnectException(f"{name} does not exist: it was already discarded or published")
            self.staged[name] = rows

        self.faults.run(DESTINATION, effect)

    def publish(self, name: str) -> None:
        """Make an artefact visible, unless it is already. Raises ConnectException if it is missing."""

        def effect() -> None:
            if name in self.staged:
                self.visible[name] = self.staged.pop(name)
            elif name not in self.visible:
                raise ConnectException(f"{name} does not exist: it was already discarded")

        self.faults.run(DESTINATION, effect)

    def discard(self, name: str) -> None:
        """Remove a begun artefact; do nothing if it is missing."""
        self.faults.run(DESTINATION, lambda: self.staged.pop(name, None))

    def read_back(self) -> list[tuple[str, int, int, Any]]:
        """Return topic, partition, offset and value of every visible record; this never fails."""
        return [
            (record.topic, record.partition, record.offset, record.value)
            for rows in self.visible.values()
            for record in rows
        ]

    def leftovers(self) -> Sequence[str]:
        """Return the names of artefacts with data that were neither published nor discarded."""
        return [name for name, rows in self.staged.items() if rows]


def _by_coordinates(records: Iterable[SinkRecord]) -> dict[tuple[str, int, int], list[SinkRecord]]:
    found: dict[tuple[str, int, int], list[SinkRecord]] = {}
    for record in records:
        found.setdefault((record.topic, record.partition, record.offset), []).append(record)
    return found


_PARTS: Final[Mapping[str, int]] = {"a": 6, "b": 4, "c": 3}


class MemoryOrigin:
    """Lines in parts, in memory: read from an offset, or taken and acknowledged as from a queue."""

    def __init__(self, faults: FaultPlan | None = None) -> None:
        self.faults = faults or FaultPlan()
        self.parts = {part: [f"{part}-{n}".encode() for n in range(size)] for part, size in _PARTS.items()}
        """Lines by part; a test may add more at any time."""
        self.forgotten: Counter[str] = Counter()
        """The number of lines at the start of each part that are lost."""

    def everything(self) -> list[bytes]:
        """Return all lines ever written, which a source of all parts must deliver."""
        return [line for lines in self.parts.values() for line in lines]

    def read(self, part: str, start: int, most: int = 3) -> Sequence[bytes]:
        """Return at most ``most`` lines of a part from an offset on; none if they are forgotten."""

        def check() -> Sequence[bytes]:
            return self.parts[part][start : start + most] if start >= self.forgotten[part] else ()

        return self.faults.run(ORIGIN, check)

    def forget(self, part: str, end: int) -> None:
        """Forget the lines before an offset."""

        def effect() -> None:
            self.forgotten[part] = max(self.forgotten[part], end)

        self.faults.run(ORIGIN, effect)
