"""A batch on its way to ``put``: in portions, each offered until it is taken, or until enough is enough."""

from __future__ import annotations

import logging
import operator

import numpy as np

from sinksdk.engine.partition import offsets_of
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import SinkRecords
from sinksdk.support.retry import Retry

log = logging.getLogger(__name__)


class Redelivery:
    """A batch that ``put`` has not taken, or not all of it. Kafka Connect offers what one poll returned.

    Args:
        records: as they were read.
        most: records that one ``put`` gets; None for all of them.
        policy: delays and budget of each portion.
        now: the moment; the first portion is due.
        label: task and generation, for messages.
    """

    def __init__(
        self, records: SinkRecords, *, most: int | None, policy: RetryPolicy, now: float, label: str
    ) -> None:
        self.records = records
        """What is not taken yet, as it was read."""
        self.converted: SinkRecords | None = None
        """The portion as the task sees it, once it could be converted."""
        self.retry_at = now
        """When the next attempt is due."""
        self._most = most
        self._policy = policy
        self._label = label
        self._portion = self._next()
        self._attempts: Attempts | None = None
        self._begun: float | None = None

    @property
    def portion(self) -> SinkRecords:
        """The records that are offered now, as they were read: the same ones until they are taken."""
        return self._portion

    @property
    def is_put_off(self) -> bool:
        """Whether what is due next is another attempt, not the first one."""
        return self._attempts is not None

    def offered(self, now: float) -> None:
        """The portion is about to be offered."""
        self._begun = now if self._begun is None else self._begun

    def take(self) -> SinkRecords:
        """All of the portion is taken. What it was, as it was read; the next one is due at once."""
        return self._take(len(self._portion))

    def take_first(self, error: RetriableException) -> SinkRecords:
        """As many of the portion are taken as the task says; what these were, as they were read.

        Records that could not be converted, and were reported, go with those before them.

        Raises:
            ConnectException: it says what cannot be.
        """
        if self.converted is None:  # a converter has raised it, which takes nothing
            return self._portion[:0]
        count = self._count(error.accepted, len(self.converted))
        if count == 0:
            return self._portion[:0]
        if count == len(self.converted):
            return self.take()
        rest = self.converted[count:]
        taken = self._take(int(np.searchsorted(offsets_of(self._portion), rest.first_offset)))
        self.converted = rest
        return taken

    def _count(self, accepted: object, given: int) -> int:
        try:
            count = operator.index(accepted)  # type: ignore[arg-type]  # the author's; numpy's is as good
        except TypeError:
            count = -1
        if 0 <= count <= given:
            return count
        raise ConnectException(
            f"{self._label}: put of {self.records.partition} at offset {self._portion.first_offset} raised "
            f"RetriableException(accepted={accepted!r}), and was given {given} records; accepted must say "
            f"how many of these, from the first on, the task has taken"
        )

    def _take(self, rows: int) -> SinkRecords:
        taken, self.records = self.records[:rows], self.records[rows:]
        self._portion = self._portion[rows:]
        if not len(self._portion):
            self._portion = self._next()
            self.converted = None
        self._attempts = self._begun = None  # there was progress: the budget begins anew
        return taken

    def _next(self) -> SinkRecords:
        most = self._most
        return self.records if most is None or len(self.records) <= most else self.records[:most]

    def put_off(
        self,
        now: float,
        error: RetriableException,
        asked: float | None,
        earlier: Retry | None = None,
        *,
        stays: bool = False,
    ) -> ConnectException | Retry | None:
        """An attempt failed in a way that may pass.

        Args:
            now: the moment.
            error: what was raised.
            asked: seconds the task asked to be left alone for (``context.timeout``).
            earlier: attempts of earlier generations.
            stays: nothing is left to a later generation.

        Returns:
            None when there will be another attempt; what is left to a later generation, if it is left to
            one; else why there will be none.
        """
        if self._attempts is None:
            self._attempts = Attempts(self._policy, now if self._begun is None else self._begun, earlier)
        delay = self._attempts.failed(now, error.retry_after if asked is None else asked)
        if delay is None:
            return self._spent(error, self._attempts.failures)
        if not stays and self._attempts.holds_up(now, delay):
            return self._attempts.left(now, delay, self._portion.first_offset)
        if self._attempts.failures == 1:
            log.warning("%s: %s failed, it is tried again: %s", self._label, self._what, error)
        self.retry_at = now + delay
        return None

    @property
    def _what(self) -> str:
        doing = "converting" if self.converted is None else "put of"
        return f"{doing} {self.records.partition} at offset {self._portion.first_offset}"

    def _spent(self, error: RetriableException, failures: int) -> ConnectException:
        spent = ConnectException(
            f"{self._label}: {self._what} failed {failures} times, for as long as "
            f"errors.retry.timeout allows: {error}"
        )
        spent.__cause__ = error
        return spent
