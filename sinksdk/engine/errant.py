"""Records that cannot be delivered: Connect's error reporter and dead letters (KIP-298, KIP-610)."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from sinksdk.context import ErrantRecordReporter
from sinksdk.errors import ConnectException
from sinksdk.records import Header, SinkRecord, TopicPartition

log = logging.getLogger(__name__)

Stage = Literal["KEY_CONVERTER", "VALUE_CONVERTER", "TASK_PUT"]


class DeadLetters(Protocol):
    """Where undeliverable records are kept."""

    def send(self, record: SinkRecord) -> Future[None]:
        """Begin writing a record; the future is done once it is durable."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Who reports: goes into the dead letter's headers."""

    connector: str
    task: int
    task_class: str


def dead_letter(record: SinkRecord, error: BaseException, stage: Stage, origin: Origin) -> SinkRecord:
    """The record with Connect's ``__connect.errors.*`` headers appended to its own."""
    context = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "connector.name": origin.connector,
        "task.id": origin.task,
        "stage": stage,
        "class.name": origin.task_class,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error) or None,
        "exception.stacktrace": "".join(traceback.format_exception(error)),
    }
    return replace(
        record,
        headers=(
            *record.headers,
            *(
                Header(f"__connect.errors.{name}", None if value is None else str(value).encode())
                for name, value in context.items()
            ),
        ),
    )


class WorkerErrantRecordReporter(ErrantRecordReporter):
    """Logs, sends to the dead letters, and refuses where bad records are not tolerated.

    Args:
        origin: connector and task that report.
        dead_letters: where they go; None only logs.
        tolerate: ``errors.tolerance=all``.
        is_logging: ``errors.log.enable``.
        on_report: told of each report's partition, its future, and the error it must fail with where
            bad records are not tolerated.
    """

    def __init__(
        self,
        origin: Origin,
        dead_letters: DeadLetters | None,
        *,
        tolerate: bool,
        is_logging: bool,
        on_report: Callable[[TopicPartition, Future[None], ConnectException | None], None],
    ) -> None:
        self._origin = origin
        self._dead_letters = dead_letters
        self._tolerate = tolerate
        self._is_logging = is_logging
        self._on_report = on_report

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Report a record the task could not deliver. See :class:`~sinksdk.ErrantRecordReporter`."""
        return self.report_from("TASK_PUT", record, error)

    def report_from(self, stage: Stage, record: SinkRecord, error: BaseException) -> Future[None]:
        """Report a record that failed in a given stage.

        The record is written before the refusal (Connect's order), so that it can be found.
        """
        where = f"{record.topic_partition} at offset {record.offset}"
        if self._is_logging:
            log.error(
                "connector %s, task %d: %s failed in %s: %s",
                self._origin.connector,
                self._origin.task,
                where,
                stage,
                error,
                exc_info=error,
            )
        if self._dead_letters is None:
            future: Future[None] = Future()
            future.set_result(None)
        else:
            future = self._dead_letters.send(dead_letter(record, error, stage, self._origin))
        refusal = None
        if not self._tolerate:
            refusal = ConnectException(
                f"connector {self._origin.connector}, task {self._origin.task}: {where} failed in "
                f"{stage} and errors.tolerance is none: {error}"
            )
            refusal.__cause__ = error
        self._on_report(record.topic_partition, future, refusal)
        if refusal is not None:
            raise refusal
        return future
