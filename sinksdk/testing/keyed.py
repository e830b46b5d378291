"""Check a destination in which each key has the value of its last record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sinksdk.offsets import OffsetAndMetadata, TopicPartition
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.store.records import TaskRecord
from sinksdk.testing.contract import HIDDEN, Capabilities, Guarantee, KitError, Row
from sinksdk.testing.judge import MOVED_BACK, WITHDRAWN, EndlessSource, Judge, Seen

__tracebackhide__ = HIDDEN

_Place = tuple[TopicPartition, int]


class KeyedJudge(Judge):
    # Records are ordered within a partition only: any partition's last record may be a key's value.
    def __init__(
        self,
        capabilities: Capabilities,
        source: EndlessSource,
        row: Callable[[SinkRecord], tuple[Any, Any] | None],
    ) -> None:
        super().__init__(capabilities, source)
        if capabilities.ordered:
            raise KitError("read_back returned a mapping, which has no order: do not declare ordered=True")
        self._row = row
        self._written: dict[Any, dict[TopicPartition, dict[int, Any]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._places: dict[Any, set[_Place]] = {}
        # An operator altered an offset: records of these partitions are read again.
        self._read_again: set[TopicPartition] = set()
        # ``row`` returns None for these records.
        self._refused: set[_Place] = set()
        self._misuse: tuple[TopicPartition, int, Exception] | None = None

    def put(self, records: SinkRecords) -> None:
        super().put(records)
        partition = records.partition
        for offset in dict.fromkeys(records.offsets.tolist()):
            if self._source.is_poison(partition, offset):
                continue
            try:
                row = self._row(self._source.record(partition, offset))
                if row is None:
                    self._refused.add((partition, offset))
                    continue
                key, value = row
                written = self._written[key][partition]
            except Exception as error:  # noqa: BLE001 - the author's code may raise anything
                self._misuse = self._misuse or (partition, offset, error)
                return
            self.met["key written again"] += offset not in written and bool(written)
            written[offset] = value

    def saved(self, before: TaskRecord, after: TaskRecord) -> None:
        rewinds = self.met[WITHDRAWN] + self.met[MOVED_BACK]
        super().saved(before, after)
        if self.met[WITHDRAWN] + self.met[MOVED_BACK] != rewinds:
            self._places.clear()  # records that are read again may be older

    def altered(self, partition: TopicPartition, to: int | None, seen: Seen) -> None:
        written = {offset for of in self._written.values() for offset in of[partition]}
        super().altered(partition, to, {**seen, partition: sorted(written)})
        self._places.clear()
        self._read_again.add(partition)

    def read(self, rows: Iterable[Row] | Mapping[Any, Any]) -> Seen:
        if self._misuse is not None:  # put would make it the sink's error
            partition, offset, error = self._misuse
            raise KitError(
                f"`row` raised {error!r} for offset {offset} of {partition}; let it return (key, value) with "
                f"a hashable key, (key, None) for a record that deletes the key, and None for a record that "
                f"the sink refuses"
            ) from error
        if not isinstance(rows, Mapping):
            raise KitError(
                "read_back returned a mapping at first, and records later; always return one of them"
            )
        return {key: value for key, value in rows.items() if value is not None}

    def changed_by_closing(self, method: str, before: Seen, after: Seen) -> None:
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                self.blame(
                    f"{method} changed key {key!r}: no commit covers records that {method} writes, so they "
                    f"are read again; write only in put and pre_commit"
                )

    def _check_rows(self, seen: Seen, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for partition in committed:
            self._check_poison(partition, committed[partition].offset)
        for key in {**self._before, **seen, **self._written}:
            self._check_key(key, seen.get(key))
            self.met["keys checked"] += key in seen
            changed = seen.get(key) != self._before.get(key)
            if changed and not self._may_change.intersection(self._written.get(key, ())):
                self.blame(f"key {key!r} changed after all partitions with this key were closed")

    def _check_poison(self, partition: TopicPartition, commit: int) -> None:
        for offset in self._source.offsets(partition):
            place = partition, offset
            is_refused = self._source.is_poison(partition, offset) or place in self._refused
            is_due = offset < commit and offset not in self._passed[partition]
            if is_due and is_refused and not self._letters[place]:
                self.blame(
                    f"lost: offset {offset} of {partition}, which cannot be delivered, is not in the dead "
                    f"letters, although the committed offset is {commit}"
                )

    def _check_key(self, key: Any, value: Any) -> None:
        if key not in self._written:
            self._expect_keys_like(key)
            self.blame(f"read_back returned key {key!r}, but no record with this key was ever put")
            return
        partitions = self._written[key]
        last = {p: self._last_of(p, offsets) for p, offsets in partitions.items()}
        same = {(p, o) for p, of in partitions.items() for o, its in of.items() if its == value}
        places = {(p, o) for p, o in same if o >= last[p] and self._may_be_seen(p, o)}
        if not places and (value is not None or any(at >= 0 for at in last.values())):
            self.blame(self._reason(key, value, last, same))
        self.met["deletions checked"] += value is None and bool(places)
        self._check_no_older_value(key, value, places)

    def _expect_keys_like(self, key: Any) -> None:
        kinds = {type(each).__name__: each for each in self._written if each is not None}
        if kinds and type(key).__name__ not in kinds:
            kind, example = next(iter(kinds.items()))
            raise KitError(
                f"read_back returned the key {key!r} of type {type(key).__name__}, but the keys of records "
                f"are of type {kind}, such as {example!r}: let `row` return the key and value that a record "
                f"leaves in the mapping (by default the bytes of its key and value, before any converter)"
            )

    def _last_of(self, partition: TopicPartition, offsets: Iterable[int]) -> int:
        commit = self._committed.get(partition, 0)
        waiting, _ = self._unpublished.get(partition, (range(0), ()))
        passed = self._passed[partition]
        due = (o for o in offsets if o < commit and o not in waiting and o not in passed)
        return max((o for o in due if not self._letters[partition, o]), default=-1)

    def _may_be_seen(self, partition: TopicPartition, offset: int) -> bool:
        exactly = self._promise.guarantee is Guarantee.EXACTLY_ONCE
        return (
            not exactly or bool(self._left[partition][offset]) or offset < self._committed.get(partition, 0)
        )

    def _reason(
        self, key: Any, value: Any, last: Mapping[TopicPartition, int], same: Iterable[_Place]
    ) -> str:
        for partition, offset in sorted(same):
            newer = last[partition]
            if offset < newer and value is not None:
                what = "deletes it" if self._written[key][partition][newer] is None else "is newer"
                return (
                    f"key {key!r} has the value of offset {offset} of {partition}, but offset {newer}, which "
                    f"is committed, {what}"
                )
            if offset >= self._committed.get(partition, 0):
                what = "is deleted by" if value is None else "has the value of"
                return (
                    f"key {key!r} {what} offset {offset} of {partition}, but the committed offset is "
                    f"{self._committed.get(partition, 0)}"
                )
        if value is not None:
            return f"read_back returned key {key!r} with the value {value!r}, which no record with it has"
        partition, offset = next((p, at) for p, at in sorted(last.items()) if at >= 0)
        return (
            f"lost: key {key!r}, which offset {offset} of {partition} wrote, is not at the destination, "
            f"although the committed offset is {self._committed[partition]}"
        )

    def _check_no_older_value(self, key: Any, value: Any, places: set[_Place]) -> None:
        before = self._places.get(key)
        self._places[key] = places
        if before is None or not before or not places or value == self._before.get(key):
            return
        if self._read_again.intersection(self._written[key]):
            return
        partitions = {partition for partition, _ in (*before, *places)}
        newer, older = min(o for _, o in before), max(o for _, o in places)
        if self._promise.guarantee is not Guarantee.AT_LEAST_ONCE and len(partitions) == 1 and older < newer:
            self.blame(
                f"seen twice: key {key!r} had the value of offset {newer} of {partitions.pop()}, and now has "
                f"the older value of offset {older} again"
            )
