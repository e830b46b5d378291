"""The context of a source task, and the source offsets that were read or committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from itertools import islice
from typing import Final, NamedTuple

from sinksdk.engine.retry import Persistence
from sinksdk.source.context import OffsetStorageReader, SourceTaskContext, TransactionContext
from sinksdk.source.positions import SourcePosition, as_json, partition_key
from sinksdk.source.records import SourceOffset, SourcePartition, SourceRecord

log = logging.getLogger(__name__)

MOST: Final = 50  # source partitions to list, those committed last

LONGEST: Final = 1_000  # characters of a listed source partition with its offset, both as JSON


class Known(NamedTuple):
    position: SourcePosition
    is_committed: bool  # False: another task may have committed a later offset


class KnownPositions:
    """The source offsets that the status lists. One thread at a time writes them, any thread reads."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self.has_more = False

    def listed(self) -> Sequence[Known]:
        return [known for _, known in sorted(self._known.copy().items())]

    def read(self, partitions: Sequence[SourcePartition], offsets: Sequence[SourceOffset | None]) -> None:
        found = {
            partition_key(partition): Known(SourcePosition.of(partition, offset), is_committed=False)
            for partition, offset in zip(partitions, offsets, strict=True)
            if offset is not None
        }
        committed = {key for key, known in self._known.items() if known.is_committed}
        self._learn({key: known for key, known in found.items() if key not in committed})

    def committed(self, positions: Mapping[str, SourcePosition]) -> None:
        self._learn({key: Known(position, is_committed=True) for key, position in positions.items()})

    def _learn(self, news: dict[str, Known]) -> None:
        latest = islice(reversed(news.items()), MOST)
        new = {key: known for key, known in latest if _length(key, known.position) <= LONGEST}
        old = {key: known for key, known in reversed(self._known.items()) if key not in news}
        kept = list({**new, **old}.items())
        self.has_more = self.has_more or len(new) < len(news) or len(kept) > MOST
        self._known = dict(reversed(kept[:MOST]))


def _length(key: str, position: SourcePosition) -> int:
    return len(key) + len(as_json(position.offset))


class PersistentOffsets(OffsetStorageReader):
    def __init__(self, offsets: OffsetStorageReader, persist: Persistence, known: KnownPositions) -> None:
        self._offsets = offsets
        self._persist = persist
        self._known = known

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        found = self._persist("reading source offsets", self._offsets.offsets, partitions)
        self._known.read(partitions, found)
        return found


class Decision(Enum):
    CONTINUE = auto()
    COMMIT = auto()
    ABORT = auto()  # the task does not read the records again


class WorkerTransactionContext(TransactionContext):
    def __init__(self, label: str, lock: Callable[[], AbstractContextManager[object]]) -> None:
        self._label = label
        self._lock = lock()
        self._batch = Decision.CONTINUE
        self._records: list[tuple[SourceRecord, Decision]] = []

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self._request(record, Decision.COMMIT)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self._request(record, Decision.ABORT)

    def take(self, record: SourceRecord) -> Decision:
        with self._lock:
            for at, (known, decision) in enumerate(self._records):
                if known is record:
                    del self._records[at]
                    return decision
        return Decision.CONTINUE

    def take_batch(self) -> Decision:
        with self._lock:
            decision, self._batch = self._batch, Decision.CONTINUE
            strangers, self._records = self._records, []
        for record, requested in strangers:
            log.warning(
                "%s: the task requested to %s its transaction after a record of %s that the next poll did "
                "not return; ignored",
                self._label,
                requested.name.lower(),
                dict(record.source_partition),
            )
        return decision

    def _request(self, record: SourceRecord | None, decision: Decision) -> None:
        with self._lock:
            requested = (decision for known, decision in self._records if known is record)
            before = self._batch if record is None else next(requested, Decision.CONTINUE)
            if before not in (decision, Decision.CONTINUE):
                where = "this batch" if record is None else "this record"
                raise ValueError(
                    f"{self._label}: the task requested both a commit and an abort of the transaction after "
                    f"{where}; request only one of the two"
                )
            if record is None:
                self._batch = decision
            elif before is Decision.CONTINUE:
                self._records.append((record, decision))


class WorkerSourceTaskContext(SourceTaskContext):
    def __init__(
        self,
        configs: Mapping[str, str],
        offsets: OffsetStorageReader,
        transactions: TransactionContext | None,
    ) -> None:
        self._configs = configs
        self._offsets = offsets
        self._transactions = transactions

    def configs(self) -> Mapping[str, str]:
        return dict(self._configs)

    def offset_storage_reader(self) -> OffsetStorageReader:
        return self._offsets

    def transaction_context(self) -> TransactionContext | None:
        return self._transactions
