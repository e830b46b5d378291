"""A batch that ``put`` has not accepted yet: when it is offered again, and when enough is enough."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sinksdk.engine.retry import Attempts
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import SinkRecords

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Redelivery:
    """One batch, the same at each attempt, as Kafka Connect offers it.

    Args:
        records: as they were read.
        attempts: how often it was tried, and for how long it will be.
        retry_at: when the next attempt is due.
        label: task and generation, for messages.
        converted: as the task sees them, once they could be converted.
    """

    records: SinkRecords
    attempts: Attempts
    retry_at: float
    label: str
    converted: SinkRecords | None = None

    def put_off(self, now: float, error: RetriableException, asked: float | None) -> ConnectException | None:
        """An attempt failed in a way that may pass.

        Args:
            now: the moment.
            error: what was raised.
            asked: seconds the task asked to be left alone for (``context.timeout``).

        Returns:
            None when there will be another attempt; else why there will be none.
        """
        delay = self.attempts.failed(now, error.retry_after if asked is None else asked)
        if delay is None:
            return self._spent(error)
        if self.attempts.failures == 1:
            log.warning("%s: %s failed, it is tried again: %s", self.label, self._what, error)
        self.retry_at = now + delay
        return None

    @property
    def _what(self) -> str:
        doing = "converting" if self.converted is None else "put of"
        return f"{doing} {self.records.partition} at offset {self.records.first_offset}"

    def _spent(self, error: RetriableException) -> ConnectException:
        spent = ConnectException(
            f"{self.label}: {self._what} failed {self.attempts.failures} times, for as long as "
            f"errors.retry.timeout allows: {error}"
        )
        spent.__cause__ = error
        return spent
