"""Check the contract after each step from outside: records put, committed and read back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from sinksdk.engine.committer import flaw_of
from sinksdk.offsets import OffsetAndMetadata, OffsetRange, Token, TopicPartition
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.store.records import TaskRecord
from sinksdk.testing.contract import HIDDEN, Capabilities, Guarantee, KitError, Row

__tracebackhide__ = HIDDEN

# Records that a transform returns for offsets 0, 1, …, repeated; the first one returns its input unchanged.
TRANSFORMS: Final[Sequence[Sequence[int]]] = (
    *((1,), (2,), (1, 3, 0, 2), (0, 0, 1, 0, 0, 5)),
    *((0, 1, 1, 4, 0, 0, 2), (1, 0, 0, 0, 0, 0, 0, 0, 1)),
)


_CAUSE: Final = ("__connect.errors.exception.class.name", "__connect.errors.exception.message")


WITHDRAWN: Final = "commit withdrawn: publish raised UnpublishableException"
MOVED_BACK: Final = "commit moved back: open requested an earlier offset with context.offset"


class EndlessSource:
    """Topic partitions that grow as they are read; reading again returns the same records."""

    def __init__(
        self, partitions: Sequence[TopicPartition], record: Callable[[TopicPartition, int], SinkRecord]
    ) -> None:
        self.partitions = list(partitions)
        self._record = record
        self._records: dict[TopicPartition, dict[int, SinkRecord]] = {p: {} for p in partitions}
        self._ends = dict.fromkeys(partitions, 0)
        self._times: dict[TopicPartition, dict[int, int]] = {p: {} for p in partitions}
        self._poison: set[tuple[TopicPartition, int]] = set()
        self.transform = TRANSFORMS[0]
        self.met: Counter[str] = Counter()

    @property
    def is_transformed(self) -> bool:
        return self.transform != TRANSFORMS[0]

    def skip(self, partition: TopicPartition, count: int) -> None:
        self._ends[partition] += count

    def produce_up_to(self, partition: TopicPartition, end: int) -> None:
        self.read_range(partition, OffsetRange(end, end))

    def produce(self, partition: TopicPartition, value: bytes | None = None) -> int:
        # A record is needed that the transform does not drop. A given value stands for a record that cannot
        # be delivered.
        while not self._left_of(self._ends[partition]):
            self._drop(partition)
        offset = self._ends[partition]
        self._times[partition][offset] = times = self._left_of(offset)
        if times > 1:
            self.met["transform: multiplied"] += 1
        record = self._record(partition, offset)
        self._records[partition][offset] = record if value is None else replace(record, value=value)
        if value is not None:
            self._poison.add((partition, offset))
        self._ends[partition] = offset + 1
        return offset

    def _drop(self, partition: TopicPartition) -> None:
        self._ends[partition] += 1
        self.met["transform: dropped"] += 1

    def _left_of(self, offset: int) -> int:
        return self.transform[offset % len(self.transform)]

    def read_range(self, partition: TopicPartition, offsets: OffsetRange) -> SinkRecords:
        while (end := self._ends[partition]) < offsets.end:
            if self._left_of(end):
                self.produce(partition)
            else:
                self._drop(partition)
        return self._batch(partition, [o for o in self._records[partition] if o in range(*offsets)])

    def read(self, partition: TopicPartition, start: int, count: int) -> SinkRecords:
        for _ in range(self.waiting(partition, start), count):
            self.produce(partition)
        records = self._records[partition]
        first = len(records) - self.waiting(partition, start)
        return self._batch(partition, list(records)[first : first + count])

    def _batch(self, partition: TopicPartition, offsets: Sequence[int]) -> SinkRecords:
        records = SinkRecords.of(partition, [self._records[partition][offset] for offset in offsets])
        rows = [row for row, offset in enumerate(offsets) for _ in range(self.times(partition, offset))]
        return (
            records
            if len(rows) == len(offsets)
            else replace(records, arrow=records.arrow.take(pa.array(rows)))
        )

    def offsets(self, partition: TopicPartition) -> Sequence[int]:
        return list(self._records[partition])

    def times(self, partition: TopicPartition, offset: int) -> int:
        return self._times[partition].get(offset, 0)

    def waiting(self, partition: TopicPartition, start: int) -> int:
        return sum(offset >= start for offset in self._records[partition])

    def record(self, partition: TopicPartition, offset: int) -> SinkRecord:
        return self._records[partition][offset]

    def is_poison(self, partition: TopicPartition, offset: int) -> bool:
        return (partition, offset) in self._poison


# Offsets by partition, in the order in which they are read back; or value by key.
Seen = Mapping[Any, Any]


class Letter(Future[None]):
    # A dead letter becomes durable as late as possible: when the engine waits for it.
    def __init__(self, write: Callable[[], None]) -> None:
        super().__init__()
        self._write = write

    def _wait(self) -> None:
        if not self.done():
            self._write()
            self.set_result(None)

    def result(self, timeout: float | None = None) -> None:
        self._wait()
        super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait()
        return super().exception(timeout)


class Judge:
    # More than ten attributes: each check needs two or three. Only the first violation is reported.

    def __init__(self, capabilities: Capabilities, source: EndlessSource) -> None:
        self._promise = capabilities
        self._source = source
        self._put: Counter[tuple[TopicPartition, int]] = Counter()
        self._letters: Counter[tuple[TopicPartition, int]] = Counter()
        self._reported: set[tuple[TopicPartition, int]] = set()
        self._cause = ""
        # The offset of the last closing pre_commit; None: it returned none.
        self.closed: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        # Commits that publish has withdrawn since the last check: their former offsets by partition.
        self._withdrawn: dict[TopicPartition, int] = {}
        # Offsets of withdrawn commits that were visible already, because publish had completed a part.
        self._left: dict[TopicPartition, Counter[int]] = defaultdict(Counter)
        self._unpublished: dict[TopicPartition, tuple[range, tuple[str, ...]]] = {}
        # Visible records that are read again because an operator altered an offset.
        self._again: Counter[tuple[TopicPartition, int]] = Counter()
        self._passed: dict[TopicPartition, set[int]] = defaultdict(set)
        # Offsets that an operator has set and no task has opened yet.
        self._altered: dict[TopicPartition, int | None] = {}
        self._discarded: set[str] = set()
        self._undiscarded: dict[tuple[TopicPartition, str], Exception] = {}
        self._before: Seen = {}
        self._may_change: set[TopicPartition] = set()
        self.problem: str | None = None
        # How often the destination reported a failure although the operation took effect: such writes may be
        # repeated.
        self.lost_responses = 0
        self.zombies_acted = False
        self.met: Counter[str] = Counter()

    def blame(self, problem: str) -> None:
        self.problem = self.problem or problem

    # -- events --------------------------------------------------------------------------------

    def acting(self, partitions: Collection[TopicPartition]) -> None:
        self._may_change.update(partitions)

    def put(self, records: SinkRecords) -> None:
        self._put.update((records.partition, offset) for offset in records.arrow.column("offset").to_pylist())

    def send(self, record: SinkRecord) -> Future[None]:
        place = record.topic_partition, record.offset
        self._reported.add(place)
        context = {header.key: header.value for header in record.headers if header.key in _CAUSE}
        self._cause = self._cause or ": ".join((context.get(key) or b"").decode() for key in _CAUSE)
        return Letter(lambda: self._letters.update([place]))

    @property
    def letters(self) -> tuple[int, str]:
        return len(self._reported), self._cause

    @property
    def has_discarded(self) -> bool:
        return bool(self._discarded)

    @property
    def records_put(self) -> int:
        return len(self._put)

    def values_refused(self) -> str | None:
        values = [
            (partition, offset)
            for partition in self._source.partitions
            for offset in self._source.offsets(partition)
            if self._source.record(partition, offset).value is not None
        ]
        letters = sum(place in self._reported for place in values)
        if any(self._put[place] and place not in self._reported for place in values):
            return None
        if letters:
            return f"{letters} became dead letters, the first one with {self._cause}"
        return _SKIPPED if any(self._was_skipped(*place) for place in values) else None

    def _was_skipped(self, partition: TopicPartition, offset: int) -> bool:
        place = partition, offset
        is_committed = offset < self._committed.get(partition, 0)
        return is_committed and not self._put[place] and place not in self._reported

    def pre_committed(
        self,
        returned: Any,
        offered: Mapping[TopicPartition, OffsetAndMetadata],
        floor: Mapping[TopicPartition, int],
        prepared: Mapping[TopicPartition, Collection[str]],
        *,
        is_closing: bool,
    ) -> None:
        if not isinstance(returned, Mapping):
            self.blame(f"pre_commit returned {returned!r}, not a mapping of offsets")
            return
        if is_closing:
            self.closed |= {p: getattr(returned.get(p), "offset", None) for p in offered}
        for partition, offset in returned.items():
            flaw = flaw_of(partition, offset, offered, floor, prepared)
            if flaw:
                self.blame(
                    f"pre_commit returned offset {getattr(offset, 'offset', offset)} for {partition}, {flaw}"
                )
        keeps_back = [
            str(p) for p, offset in offered.items() if p not in returned or returned[p].offset < offset.offset
        ]
        if keeps_back and not self._promise.buffers and not is_closing and self.problem is None:
            self.blame(
                f"a periodic commit did not cover all records of {', '.join(keeps_back)} that were put, "
                f"although buffers=False is declared: let pre_commit return all offsets, or declare "
                f"buffers=True"
            )

    def saved(self, before: TaskRecord, after: TaskRecord) -> None:
        entries = {entry.topic_partition: entry for entry in before.entries}
        for entry in after.entries:
            partition, former = entry.topic_partition, entries.get(entry.topic_partition)
            # A commit may go back when its entry says so: publish has withdrawn it, which needs tokens, or
            # the task requested an earlier position in open.
            if former and entry.offset < former.offset == entry.withdrawn_from:
                self._committed[partition] = min(self._committed.get(partition, 0), entry.offset)
                if former.publish:
                    self._withdrawn[partition] = former.offset
                self.met[WITHDRAWN if former.publish else MOVED_BACK] += 1
            if not entry.publish:
                self._unpublished.pop(partition, None)
            elif former is None or former.publish != entry.publish:
                start = former.offset if former else 0
                ids = tuple(token.id for token in entry.publish)
                self._unpublished[partition] = range(start, entry.offset), ids

    def altered(self, partition: TopicPartition, to: int | None, seen: Seen) -> None:
        before, start = self._committed.get(partition, 0), to or 0
        passed = {offset for offset in self._passed[partition] if offset < start}
        self._passed[partition] = passed.union(range(before, start))
        self._committed[partition] = start
        self._altered[partition] = to
        self.met["offsets altered"] += 1
        # Records that are read again are already visible, and may be seen twice.
        visible = Counter(offset for offset in seen.get(partition, ()) if offset >= start)
        self._left[partition] |= visible
        self._again.update((partition, offset) for offset in visible)

    def opened(self, partition: TopicPartition, requested: object) -> None:
        if partition not in self._altered:
            return
        to = self._altered.pop(partition)
        if requested is not None and requested != (to or 0):
            change = "removed the offset" if to is None else f"set the offset to {to}"
            self.blame(
                f"open requested offset {requested} of {partition} after an operator {change}, which undoes "
                f"the operator's change: let the connector's alter_offsets change the offset that the sink "
                f"keeps at the destination, and pass that function to the kit as `alter`"
            )

    def published(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        waiting = self._unpublished.get(partition)
        if waiting and waiting[1] == tuple(token.id for token in tokens):
            del self._unpublished[partition]

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self._discarded.add(token.id)
            self._undiscarded.pop((partition, token.id), None)

    def not_discarded(self, partition: TopicPartition, tokens: Sequence[Token], error: Exception) -> None:
        self._undiscarded.update({(partition, token.id): error for token in tokens})

    # -- visible records --------------------------------------------------------------------------------

    def read(self, rows: Iterable[Row] | Mapping[Any, Any]) -> Seen:
        if isinstance(rows, Mapping):
            raise KitError(
                "read_back returned records at first, and a mapping later; always return one of them"
            )
        seen: dict[TopicPartition, list[int]] = defaultdict(list)
        for row in rows:
            try:
                topic, number, offset, *value = row
            except (TypeError, ValueError):
                raise KitError(
                    f"read_back returned {row!r}; return (topic, partition, offset) or (…, offset, value)"
                ) from None
            partition = TopicPartition(topic, number)
            seen[partition].append(offset)
            if (partition, offset) not in self._put:
                self.blame(f"read_back returned offset {offset} of {partition}, which was never put")
            elif value and value[0] != (own := self._source.record(partition, offset).value):
                self.blame(
                    f"read_back returned offset {offset} of {partition} with the value {value[0]!r}, but "
                    f"the value of the record that was put is {own!r}"
                )
        return seen

    def changed_by_closing(self, method: str, before: Seen, after: Seen) -> None:
        for partition, offsets in after.items():
            fresh: list[int] = list((Counter(offsets) - Counter(before.get(partition, ()))).elements())
            if fresh:
                self.blame(
                    f"{method} wrote {_listed(fresh)} of {partition}: no commit covers records that "
                    f"{method} writes, so they are read again; write only in put and pre_commit"
                )

    def check(self, seen: Seen, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.met["duplicates seen"] = 0
        for partition in {**self._committed, **committed}:
            commit = committed[partition].offset if partition in committed else 0
            if commit < (before := self._committed.get(partition, 0)):
                self.blame(f"the committed offset of {partition} went back from {before} to {commit}")
            self._committed[partition] = commit
        self._check_rows(seen, committed)
        self._before = seen
        self._may_change.clear()

    def _check_rows(self, seen: Seen, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for partition in {**self._before, **seen, **committed}:
            commit = self._committed.get(partition, 0)
            offsets = seen.get(partition, ())
            self._check_losses(partition, commit, Counter(offsets))
            self._check_duplicates(partition, Counter(offsets))
            self._check_order(partition, offsets)
            early = Counter(offset for offset in offsets if offset >= commit)
            if partition in self._withdrawn:
                end = self._withdrawn.pop(partition)
                self._left[partition] |= Counter({o: times for o, times in early.items() if o < end})
            early -= self._left[partition]
            if self._promise.guarantee is Guarantee.EXACTLY_ONCE and early:
                self.blame(
                    f"read_back returned {_listed(sorted(early))} of {partition}, but the committed offset "
                    f"is {commit}: an exactly-once sink makes records visible only after their commit"
                )
            if partition not in self._may_change and offsets != self._before.get(partition, ()):
                self.blame(f"the visible records of {partition} changed after it was closed")

    def check_range(
        self, partition: TopicPartition, offsets: OffsetRange, records: SinkRecords, committed: int
    ) -> None:
        last = records.next_offset if len(records) else offsets.start
        if last <= committed < offsets.end:
            self.blame(
                f"the range {offsets} of {partition} was read to its end and all its records are committed, "
                f"but the committed offset is {committed}: this is a bug of sinksdk; please report it"
            )

    def _check_losses(self, partition: TopicPartition, commit: int, seen: Counter[int]) -> None:
        waiting, _ = self._unpublished.get(partition, (range(0), ()))
        lost = {
            offset: found
            for offset in self._source.offsets(partition)
            if offset < commit
            and offset not in waiting
            and offset not in self._passed[partition]
            and (found := seen[offset] + self._letters[partition, offset])
            < self._source.times(partition, offset)
        }
        first = next((offset for offset, found in lost.items() if found), None)
        if first is not None:
            self.blame(
                f"lost: of the {self._source.times(partition, first)} records that a transform created from "
                f"offset {first} of {partition}, only {lost[first]} {'is' if lost[first] == 1 else 'are'} at "
                f"the destination, although the committed offset is {commit}; write all records of an offset "
                f"together, because no commit can divide them"
            )
        elif lost:
            nowhere = (
                "neither at the destination nor in the dead letters"
                if self._promise.dead_letters
                else "not at the destination"
            )
            self.blame(
                f"lost: {_listed(list(lost))} of {partition} {'is' if len(lost) == 1 else 'are'} {nowhere}, "
                f"although the committed offset is {commit}{self._why(partition, lost)}"
            )

    def _why(self, partition: TopicPartition, lost: Collection[int]) -> str:
        return f"; {_SKIPPED}" if all(self._was_skipped(partition, offset) for offset in lost) else ""

    def _check_duplicates(self, partition: TopicPartition, seen: Counter[int]) -> None:
        for offset, times in seen.items():
            once = self._source.times(partition, offset)
            if times <= once * (1 + self._again[partition, offset]):
                continue
            self.met["duplicates seen"] += 1
            if self._promise.guarantee is not Guarantee.AT_LEAST_ONCE:
                self.blame(
                    f"seen twice: read_back returned offset {offset} of {partition} {times} times{_of(once)}"
                )
            elif times > self._put[partition, offset] + self.lost_responses * once:
                self.blame(
                    f"read_back returned offset {offset} of {partition} {times} times, but it was put only "
                    f"{_times(self._put[partition, offset])}"
                )

    def _check_order(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        once = self._promise.guarantee is not Guarantee.AT_LEAST_ONCE
        is_read_again = any(place[0] == partition for place in self._again)
        if not self._promise.ordered or is_read_again or (self.zombies_acted and not once):
            return  # a zombie may repeat records before its successor writes later ones
        in_turn = list(offsets if once else dict.fromkeys(offsets))
        if in_turn != sorted(in_turn):
            self.blame(
                f"read_back returned {_listed(in_turn)} of {partition} in this order, although ordered=True "
                f"is declared"
            )

    def check_end(
        self,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        noted: Mapping[TopicPartition, Collection[str]],
        leftovers: Collection[str],
    ) -> None:
        for partition in self._unpublished:
            self.blame(f"committed records of {partition} were never published")
        for partition in self._source.partitions if self._promise.commits_on_close else ():
            commit = committed[partition].offset if partition in committed else 0
            kept_back = self._source.offsets(partition)[-1:]
            if kept_back and kept_back[0] >= commit:
                self.blame(
                    f"after the closing commit the committed offset of {partition} is {commit}, but its last "
                    f"record has offset {kept_back[0]}: records that the closing commit does not cover are "
                    f"read again; let pre_commit write all records and return their offsets while "
                    f"is_closing() is true, or declare commits_on_close=False"
                )
        self._check_noted(noted)
        self._check_leftovers(list(map(str, leftovers)))

    def _check_noted(self, noted: Mapping[TopicPartition, Collection[str]]) -> None:
        for partition, ids in noted.items():
            stuck = [token for token in ids if (partition, token) in self._undiscarded]
            if stuck:
                error = self._undiscarded[partition, stuck[0]]
                self.blame(
                    f"discard of {partition} failed although no fault was injected, so "
                    f"{', '.join(stuck)} stays prepared for ever: {type(error).__name__}: {error}; discard "
                    f"must return without an error when there is nothing to remove"
                )

    def _check_leftovers(self, leftovers: Sequence[str]) -> None:
        kept = [name for name in leftovers if name in self._discarded]
        if kept:
            self.blame(
                f"leftover data at the destination: {', '.join(kept)}, although discard received the token "
                f"and returned; discard must remove the data of its tokens, or raise"
            )
        elif leftovers:
            or_discard = (
                "; or discard received the token and did not remove the data" if self._discarded else ""
            )
            self.blame(
                f"leftover data at the destination that no commit and no token names: "
                f"{', '.join(leftovers)}; pass the token to context.prepared before writing data to it"
                f"{or_discard}"
            )


_SKIPPED: Final = (
    "no task received it, because a converter or transform in `config` rejected it and errors.tolerance=all "
    "skipped it"
)


def _of(once: int) -> str:
    return "" if once == 1 else f", but a transform created only {once} records from it"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _listed(offsets: Sequence[int]) -> str:
    noun = "offset" if len(offsets) == 1 else "offsets"
    shown = ", ".join(map(str, offsets[:8]))
    return f"{noun} {shown}{' …' if len(offsets) > 8 else ''}"  # noqa: PLR2004 - enough to see what they are
