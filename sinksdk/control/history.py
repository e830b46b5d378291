"""What a connector did lately: what was committed minute by minute, and what failed. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sinksdk.control.progress import Report, partition_of
from sinksdk.engine import PartitionOutcome
from sinksdk.engine.clock import WallClock
from sinksdk.engine.outcome import Failure, SourceTaskOutcome
from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import history_key
from sinksdk.store.reports import Bucket, ConnectorHistory, PastFailure, SourceProgress
from sinksdk.support.logs import Outage

BUCKET: Final = 60
"""Seconds that a bucket stands for."""

KEPT: Final = 360
"""Buckets that are kept: six hours."""

FAILURES: Final = 20
"""Failures that are kept."""

_TRACE: Final = 4_000  # characters of a trace, the last ones: they tell the cause


class Amounts(NamedTuple):
    """What was committed."""

    records: int = 0
    files: int = 0
    bytes: int = 0
    transactions: int = 0

    def plus(self, more: Amounts) -> Amounts:
        """Both together."""
        return Amounts(*(a + b for a, b in zip(self, more, strict=True)))

    def since(self, before: Amounts) -> Amounts:
        """What has come on top. A count that has fallen is another attempt's, which began at nothing."""
        if any(now < then for now, then in zip(self, before, strict=True)):
            return self
        return Amounts(*(now - then for now, then in zip(self, before, strict=True)))


class Account(NamedTuple):
    """What is told of one partition, or of one task of a source.

    Args:
        of: which.
        amounts: what it has committed since its task began.
        failure: why it has ended early.
    """

    of: TopicPartition | int
    amounts: Amounts
    failure: Failure | None = None


def of_partition(row: Report) -> Account:
    """What a task says of a partition. What its connector counts is taken at its word."""
    amounts = Amounts(row.records - row.tail, row.counts.get("files", 0), row.counts.get("bytes", 0))
    return Account(partition_of(row), amounts, row.failure if isinstance(row, PartitionOutcome) else None)


def of_task(task: int, row: SourceProgress | SourceTaskOutcome) -> Account:
    """What a task of a source says of itself, while it runs or once it has ended."""
    amounts = Amounts(row.records, transactions=row.transactions)
    return Account(task, amounts, row.failure if isinstance(row, SourceTaskOutcome) else None)


class Growth:
    """By how much a generation's accounts have grown since they were last looked at: nothing counts twice."""

    def __init__(self) -> None:
        self._before: dict[TopicPartition | int, Amounts] = {}

    def begin(self) -> None:
        """A generation begins: its tasks count from nothing."""
        self._before = {}

    def of(self, accounts: Iterable[Account]) -> Amounts:
        """What was committed since the last call."""
        total = Amounts()
        for account in accounts:
            total = total.plus(account.amounts.since(self._before.get(account.of, Amounts())))
            self._before[account.of] = account.amounts
        return total


def with_amounts(history: ConnectorHistory, at: float, amounts: Amounts) -> ConnectorHistory:
    """A history to which this was added.

    Args:
        history: as it was.
        at: seconds since the epoch.
        amounts: what was committed then.
    """
    return _with_buckets(history, [Bucket(start=int(at // BUCKET) * BUCKET, **amounts._asdict())])


def with_failures(history: ConnectorHistory, at: float, accounts: Iterable[Account]) -> ConnectorHistory:
    """A history to which the failures among these were added. One that said the same before stands once."""
    failures = (
        PastFailure(
            **_where(account.of),
            at=at,
            times=1,
            message=account.failure.message,
            trace=account.failure.trace[-_TRACE:],
        )
        for account in accounts
        if account.failure is not None
    )
    return history.model_copy(update={"failures": _each_once(history.failures, failures)})


def _each_once(earlier: Iterable[PastFailure], later: Iterable[PastFailure]) -> tuple[PastFailure, ...]:
    """The last ones, each message once, as it was the last time and with how often it was in all."""
    found: dict[str, PastFailure] = {}
    for failure in (*earlier, *later):
        before = found.pop(failure.message, None)
        times = failure.times + (before.times if before else 0)
        found[failure.message] = failure.model_copy(update={"times": times})
    return tuple(found.values())[-FAILURES:]


def _where(of: TopicPartition | int) -> dict[str, Any]:
    return {"task": of} if isinstance(of, int) else {"topic": of.topic, "partition": of.partition}


def together(earlier: ConnectorHistory, later: ConnectorHistory) -> ConnectorHistory:
    """Two histories of one connector as one."""
    failures = _each_once(earlier.failures, later.failures)
    return _with_buckets(earlier.model_copy(update={"failures": failures}), later.buckets)


def _with_buckets(history: ConnectorHistory, more: Iterable[Bucket]) -> ConnectorHistory:
    buckets = {bucket.start: bucket for bucket in history.buckets}
    for bucket in more:
        known = buckets.get(bucket.start)
        buckets[bucket.start] = bucket if known is None else _sum(known, bucket)
    oldest = max(buckets, default=0) - KEPT * BUCKET
    kept = tuple(bucket for start, bucket in sorted(buckets.items()) if start > oldest)
    return history.model_copy(update={"buckets": kept})


def _sum(a: Bucket, b: Bucket) -> Bucket:
    amounts = Amounts(a.records, a.files, a.bytes, a.transactions).plus(
        Amounts(b.records, b.files, b.bytes, b.transactions)
    )
    return Bucket(start=a.start, **amounts._asdict())


log = logging.getLogger(__name__)

_INTERVAL: Final = 5.0  # seconds between two writes into a near store


class HistoryKeeper:
    """One driver's hold on a connector's history. It informs only: losing it costs no record.

    Nothing is written while nothing is committed. A driver that is killed takes with it what it had not
    written: those records are in no bucket.

    Args:
        store: where it is kept.
        connector: the connector's name.
        clock: time.
    """

    def __init__(self, store: Store, connector: str, clock: WallClock) -> None:
        self._store = store
        self._key = history_key(connector)
        self._clock = clock
        # A store that is paid by the request is written to less often.
        self._interval = max(_INTERVAL, 6 * store.closing_poll)
        self._growth = Growth()
        self._history = ConnectorHistory()
        self._is_loaded = False
        self._version: str | None = None
        self._saved = self._history
        self._next = clock.now()
        self._outage = Outage(log, f"keeping the history of connector {connector}")

    def generation_begins(self) -> None:
        """Tasks count from nothing from now on."""
        self._growth.begin()

    def progress(self, accounts: Iterable[Account]) -> None:
        """Take in what the running generation's tasks report; written when it is time."""
        self._count(accounts)
        if self._clock.now() >= self._next:
            self.save()

    def ended(self, accounts: Sequence[Account]) -> None:
        """Take in what became of a generation, and write it: another driver may be the next one."""
        self._count(accounts)
        self._history = with_failures(self._history, self._clock.time(), accounts)
        self.save()

    def save(self) -> None:
        """Write it now, if there is anything new. What fails is made up for the next time."""
        if self._history == self._saved:
            return
        self._next = self._clock.now() + self._interval
        try:
            self._load()
            self._write()
            self._outage.worked()
        except ConnectException as error:
            self._outage.failed("the connector's history cannot be written: %s", error)

    def _count(self, accounts: Iterable[Account]) -> None:
        amounts = self._growth.of(accounts)
        if amounts != Amounts():
            self._history = with_amounts(self._history, self._clock.time(), amounts)

    def _load(self) -> None:
        """Once, and only when this driver has something to add: it is the connector's only one by then."""
        if not self._is_loaded:
            row = table.read(self._store, self._key, ConnectorHistory)
            if row is not None:
                self._history, self._version = together(row.value, self._history), row.version
            self._is_loaded = True

    def _write(self) -> None:
        """Ours holds whole, so a write whose fate is unknown is simply made again."""
        history = self._history
        try:
            row = table.write(self._store, self._key, history, self._version)
        except Conflict:  # an earlier write of ours, or a driver that does not know yet that it is fenced
            found = self._store.stored(self._key)
            row = table.write(self._store, self._key, history, found.version if found else None)
        self._version, self._saved = row.version, history
