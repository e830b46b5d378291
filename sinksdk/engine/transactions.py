"""Check a source's records and write them in transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sinksdk.engine.hooks import call_author
from sinksdk.engine.measures import Measures
from sinksdk.engine.options import SourceOptions
from sinksdk.engine.retry import Persistence
from sinksdk.engine.source_context import Decision, KnownPositions, WorkerTransactionContext
from sinksdk.engine.writer import TransactionalWriter
from sinksdk.errors import ConnectException, DataException, FencedException
from sinksdk.model.measures import Phase
from sinksdk.records import Header
from sinksdk.source.positions import SourcePosition, as_json, is_utf8
from sinksdk.source.records import RecordMetadata, SourcePartition, SourceRecord
from sinksdk.source.task import SourceTask

log = logging.getLogger(__name__)


class Boundaries:
    """Transactions end where ``transaction.boundary`` says.

    With ``connector``, ``asked`` has the task's requests; one during a poll applies to the next batch.
    """

    def __init__(self, options: SourceOptions, now: float, asked: WorkerTransactionContext | None) -> None:
        self._interval = options.interval if options.boundary == "interval" else None
        self._due = now + options.interval
        self._asked = asked

    def after_record(self, record: SourceRecord) -> Decision:
        return Decision.CONTINUE if self._asked is None else self._asked.take(record)

    def after_batch(self, now: float) -> Decision:
        # An interval never splits the records of a poll.
        if self._asked is not None:
            return self._asked.take_batch()
        if self._interval is not None:
            if now < self._due:
                return Decision.CONTINUE
            self._due = now + self._interval
        return Decision.COMMIT

    def while_polling(self, now: float) -> Decision:
        # A transaction that is due does not wait for ``poll``, which may never return.
        return Decision.CONTINUE if self._interval is None else self.after_batch(now)

    def at_the_end(self) -> Decision:
        # Readers must not see a part of a transaction whose end the task defines: its records are read again.
        return Decision.COMMIT if self._asked is None else Decision.CONTINUE


_PARTITIONS: Final = range(2**31)  # Kafka's numbers of partitions have 32 bits
_TIMESTAMPS: Final = range((2**63 - 1) // 1000 + 1)  # Spark has microseconds in 64 bits


def checked_position(record: Any, label: str) -> SourcePosition:
    if not isinstance(record, SourceRecord):
        raise ConnectException(
            f"{label}: poll returned a sequence with a {type(record).__name__}; it must return a sequence of "
            f"SourceRecord"
        )
    # A committed record that no reader can read would fail every reader of its topic.
    for problem in _problems(record):
        raise DataException(f"{label}: a record for topic {_shown(record.topic)}: {problem}")
    try:
        return SourcePosition.of(record.source_partition, record.source_offset)
    except DataException as error:
        raise DataException(f"{label}: a record for topic {record.topic}: {error}") from error


def _problems(record: Any) -> Iterator[str]:
    topic, partition, timestamp = record.topic, record.partition, record.timestamp
    if not isinstance(topic, str) or not topic or "\0" in topic or not is_utf8(topic):
        yield "its topic must be a non-empty string without NUL and lone surrogates"
    for what, content in (("key", record.key), ("value", record.value)):
        if content is not None and not isinstance(content, bytes):
            yield f"its {what} is of type {type(content).__name__}; encode it to bytes"
    # The type is checked first, because 1.0 and True are also in a range of integers.
    if partition is not None and (type(partition) is not int or partition not in _PARTITIONS):
        yield f"its partition is {partition!r}; give it an int from 0 to {_PARTITIONS[-1]}, or None"
    if timestamp is not None and (type(timestamp) is not int or timestamp not in _TIMESTAMPS):
        yield f"its timestamp is {timestamp!r}; give it milliseconds since the epoch as an int, or None"
    if record.headers != ():
        yield from _problems_of_headers(record.headers)


def _problems_of_headers(headers: Any) -> Iterator[str]:
    if not isinstance(headers, (tuple, list)):
        yield f"its headers are of type {type(headers).__name__}; give it a tuple of Header"
        return
    for header in headers:
        if not isinstance(header, Header):
            yield f"one of its headers is a {type(header).__name__}; give it a tuple of Header"
            continue
        key: Any = header.key
        value: Any = header.value
        if not isinstance(key, str) or not is_utf8(key):
            yield f"a header's key is {key!r}; it must be a string without lone surrogates"
        if value is not None and not isinstance(value, bytes):
            yield f"the value of its header {key!r} is of type {type(value).__name__}; encode it to bytes"


def _shown(topic: Any) -> str:
    return topic if isinstance(topic, str) and topic.isprintable() and topic else repr(topic)


class SourceTransactions:
    def __init__(
        self,
        task: SourceTask,
        writer: TransactionalWriter,
        *,
        label: str,
        persist: Persistence,
        measures: Measures,
        known: KnownPositions,
    ) -> None:
        # Ten attributes: the last four are the open transaction and the latest partition key.
        self._task = task
        self._writer = writer
        self._label = label
        self._persist = persist
        self._measures = measures
        self._known = known
        self._is_open = False
        self._sent: list[SourceRecord] = []
        self._positions: dict[str, SourcePosition] = {}
        self._last: tuple[SourcePartition, SourcePartition, str] | None = None

    def init(self) -> None:
        with self._measures.phase(Phase.FENCE):
            self._persist("fencing its predecessors", self._writer.init)

    def send(self, record: SourceRecord) -> None:
        position = checked_position(record, self._label)
        self._begin()
        self._persist("sending a record", self._writer.send, record)
        self._sent.append(record)
        self._positions[self._key(record.source_partition, position)] = position

    def end(self, decision: Decision) -> None:
        match decision:
            case Decision.COMMIT:
                self.commit()
            case Decision.ABORT:
                self.abort()
            case Decision.CONTINUE:
                pass

    def commit(self) -> None:
        if not self._is_open:
            return
        positions = self._positions
        with self._measures.offset_commit(), self._measures.phase(Phase.COMMIT):
            written = self._persist("committing a transaction", self._writer.commit, list(positions.values()))
        sent = self._close()
        self._measures.transaction_committed(len(sent))
        self._known.committed(positions)
        self._report(sent, written)

    def abort(self) -> None:
        if not self._is_open:
            log.warning("%s: the task requested to abort a transaction without records; ignored", self._label)
            return
        # The source offsets are committed even so: aborted records are not read again.
        positions = self._positions
        with self._measures.phase(Phase.COMMIT):
            self._persist("aborting a transaction", self._writer.abort)
            sent = self._close()
            self._begin()
            self._persist("committing offsets", self._writer.commit, list(positions.values()))
        self._close()
        self._measures.transaction_aborted(len(sent))
        self._known.committed(positions)
        self._report(sent, [None] * len(sent))

    def give_up(self) -> None:
        if not self._is_open:
            return
        self._close()
        try:
            self._writer.abort()
        except FencedException:
            pass  # a newer writer has this transactional id and has aborted the transaction
        except Exception as error:  # noqa: BLE001 - the rest must be closed, whatever the writer raises
            # Readers see no difference: the next writer with this id aborts it first.
            log.warning(
                "%s: cannot abort the open transaction, which the next attempt aborts: %s", self._label, error
            )

    def _report(self, sent: Sequence[SourceRecord], written: Sequence[RecordMetadata | None]) -> None:
        with self._measures.phase(Phase.COMMIT_CALLBACK):
            for record, metadata in zip(sent, written, strict=True):
                call_author(self._label, self._task, "commit_record", record, metadata)
            call_author(self._label, self._task, "commit")

    def _begin(self) -> None:
        if not self._is_open:
            self._persist("beginning a transaction", self._writer.begin)
            self._is_open = True

    def _close(self) -> list[SourceRecord]:
        sent = self._sent
        self._is_open, self._sent, self._positions = False, [], {}
        return sent

    def _key(self, given: SourcePartition, position: SourcePosition) -> str:
        # Most records have the source partition of the record before.
        if self._last is not None and self._last[0] is given and self._last[1] == position.partition:
            return self._last[2]
        key = as_json(position.partition)
        self._last = given, position.partition, key
        return key
