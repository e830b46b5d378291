"""Report errant records to log and dead letters, as Connect does (KIP-298, KIP-610)."""

from __future__ import annotations

import logging
import traceback
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from sinksdk.context import ErrantRecordReporter
from sinksdk.engine.commits import DeadLetters
from sinksdk.engine.context import TaskScope
from sinksdk.engine.options import ErrorLimit, TaskName
from sinksdk.engine.partition import InDoubt
from sinksdk.errors import ConfigException, ConnectException, DataException, describe
from sinksdk.offsets import TopicPartition
from sinksdk.records import Header, SinkRecord, SinkRecords
from sinksdk.support.confidential import SECRETS
from sinksdk.transforms.parts import PARTS
from sinksdk.values.text import SPARK_JSON, to_bytes

log = logging.getLogger(__name__)

_DONE: Future[None] = Future()
_DONE.set_result(None)
_LOGGED = 1_000  # bytes of a key or value in a log line

Stage = Literal["KEY_CONVERTER", "VALUE_CONVERTER", "TRANSFORMATION", "TASK_PUT"]


def dead_letter(
    record: SinkRecord, error: BaseException, stage: Stage, name: TaskName, failed_class: str
) -> SinkRecord:
    context = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "connector.name": name.connector,
        "task.id": name.task,
        "stage": stage,
        "class.name": failed_class,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": SECRETS.hide(str(error)) or None,
        "exception.stacktrace": SECRETS.hide("".join(traceback.format_exception(error))),
    }
    return replace(
        record,
        headers=(
            *record.headers,
            *(
                Header(f"__connect.errors.{name}", None if value is None else _utf8(str(value)))
                for name, value in context.items()
            ),
        ),
    )


def _utf8(text: str) -> bytes:
    return text.encode(errors="backslashreplace")  # an author's message may hold lone surrogates


def _as_read(record: SinkRecord) -> SinkRecord:
    if record.read_from is None:
        return record
    # Typed content goes out as bytes: Python has no objects for some timestamps.
    batch, row = record.read_from
    batch = batch.slice(row, 1)
    for place, name in enumerate(batch.schema.names):
        if name in PARTS:
            batch = batch.set_column(place, name, to_bytes(batch.column(name), SPARK_JSON))
    return SinkRecords(record.topic_partition, batch)[0]


def _bytes_of(record: SinkRecord) -> SinkRecord:
    read = _as_read(record)
    for name, data in (("key", read.key), ("value", read.value)):
        if not isinstance(data, bytes | None):
            raise ConnectException(
                f"{read.topic_partition} at offset {read.offset} cannot go to the dead letters: its {name} "
                f"is of type {type(data).__name__}; report the record that put was given, or one with bytes"
            )
    return read


class WorkerErrantRecordReporter(ErrantRecordReporter):
    def __init__(self, scope: TaskScope, name: TaskName, dead_letters: DeadLetters | None) -> None:
        self._scope = scope
        self._name = name
        self._dead_letters = dead_letters
        self._options = scope.options
        self._measures = scope.measures
        self._counters: dict[TopicPartition, ErrorCounter] = {}

    def begin(self, partition: TopicPartition, offsets: npt.NDArray[np.int64]) -> None:
        if partition not in self._counters:
            self._counters[partition] = ErrorCounter(partition, self._options.error_limit)
        # If a transform makes several records of one, these count as one record.
        if self._options.is_transformed and not (offsets[1:] > offsets[:-1]).all():
            offsets = np.unique(offsets)
        self._counters[partition].begin(offsets)

    def forget(self, partition: TopicPartition) -> None:
        self._counters.pop(partition, None)

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        return self.report_from("TASK_PUT", record, error)

    def report_from(
        self,
        stage: Stage,
        record: SinkRecord,
        error: BaseException,
        failed: object = None,
        where: str = "",
    ) -> Future[None]:
        """Report a record; ``failed`` is the converter or transform, None: the task."""
        self._measures.failed()
        what = f"{stage} ({where})" if where else stage
        self._log(what, record, error)
        future = _DONE
        # Connect logs a record, and writes it to the dead letters, before it refuses the record: so operators
        # can find it.
        refusal = self._too_many(what, record, error) if self._options.tolerate_errors else None
        if refusal is None and self._dead_letters is not None:
            future = self._dead_letters.send(self._letter(stage, record, error, failed))
            self._measures.dead_letter(future)
        if not self._options.tolerate_errors:
            refusal = self._intolerable(what, record, error)
        offset = record.offset if stage == "TASK_PUT" else None
        self._scope.reported(record.topic_partition, offset, future, refusal)
        if refusal is not None:
            raise refusal
        self._measures.skipped()
        return future

    def _letter(self, stage: Stage, record: SinkRecord, error: BaseException, failed: object) -> SinkRecord:
        read = _bytes_of(record)
        if not self._options.context_headers:
            return read
        failed_class = type(self._scope.task).__qualname__ if failed is None else _class_of(failed)
        return dead_letter(read, error, stage, self._name, failed_class)

    def _too_many(self, stage: str, record: SinkRecord, error: BaseException) -> ConnectException | None:
        if isinstance(error, DataException) and error.is_expected:
            return None
        counter = self._counters.get(record.topic_partition)
        excess = counter.failed(record.offset, f"{stage}: {describe(error)}") if counter else None
        if excess is not None:
            excess.__cause__ = error
        return excess

    def _intolerable(self, stage: str, record: SinkRecord, error: BaseException) -> ConnectException:
        refusal = ConnectException(
            f"{self._name}: {_where(record)} failed in {stage} and errors.tolerance is none: "
            f"{describe(error)}"
        )
        refusal.__cause__ = error
        return refusal

    def _log(self, stage: str, record: SinkRecord, error: BaseException) -> None:
        if not self._options.log_errors:
            return
        self._measures.logged()
        content = ""
        if self._options.log_messages:
            with suppress(ConfigException):  # a value whose type has no text form is left out
                read = _as_read(record)
                content = f" (key {_shortened(read.key)}, value {_shortened(read.value)})"
        log.error(
            "%s: %s%s failed in %s: %s",
            self._name,
            _where(record),
            content,
            stage,
            describe(error),
            exc_info=error,
        )


def _where(record: SinkRecord) -> str:
    return f"{record.topic_partition} at offset {record.offset}"


def _shortened(data: object) -> str:
    text = repr(data[:_LOGGED] if isinstance(data, bytes) else data)
    return text if len(text) <= 4 * _LOGGED else f"{text[: 4 * _LOGGED]}…"


def _class_of(converter: object) -> str:
    named = converter if hasattr(converter, "__qualname__") else type(converter)
    return f"{named.__module__}.{named.__qualname__}"


class TooManyErrorsException(InDoubt): ...


class ErrorCounter:
    def __init__(self, partition: TopicPartition, limit: ErrorLimit) -> None:
        self._partition = partition
        self._limit = limit
        self._offsets: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._before = 0
        self._seen = 0
        self._failed = 0
        self._first = ""
        self._counted: set[int] = set()
        self._runs: dict[int, int] = {}

    def begin(self, offsets: npt.NDArray[np.int64]) -> None:
        # All records of earlier batches were counted; a run of failures continues only from the last of them.
        last = self._before + len(self._offsets)
        self._before = self._seen = last
        self._offsets = offsets
        self._counted = {last} & self._counted
        self._runs = {last: self._runs[last]} if last in self._counted else {}

    def failed(self, offset: int, cause: str) -> TooManyErrorsException | None:
        """Count a failed record; return the error that ends the partition, if any."""
        place = self._place(offset)
        # A record may be reported twice.
        if place in self._counted:
            return None
        self._seen = max(self._seen, place or 0)
        self._failed += 1
        self._first = self._first or f"offset {offset}: {cause}"
        in_a_row = 1 if place is None else self._join(place)
        excess = self._limit.excess(in_a_row=in_a_row, failed=self._failed, of=self._seen)
        if excess is None:
            return None
        return TooManyErrorsException(
            f"{self._failed:,} of {self._seen:,} records of {self._partition} failed in this generation: "
            f"{excess}. The first was at {self._first}; the last at offset {offset}: {cause}. Nothing after "
            f"the partition's last commit is committed, so these records are read again: "
            f"fix the cause, or raise the limit if the records are bad"
        )

    def _place(self, offset: int) -> int | None:
        """Return the number of records up to this one; None: the record was in an earlier batch."""
        row = int(np.searchsorted(self._offsets, offset))
        if row == len(self._offsets) or self._offsets[row] != offset:
            return None
        return self._before + row + 1

    def _join(self, place: int) -> int:
        """Add a failed record to its run; return the length of the run."""
        self._counted.add(place)
        left, right = self._runs.get(place - 1, 0), self._runs.get(place + 1, 0)
        length = left + 1 + right
        self._runs[place] = self._runs[place - left] = self._runs[place + right] = length
        return length
