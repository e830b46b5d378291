"""How far a driver may read: what the source has, or had when the driver began to catch up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sinksdk.config import ConnectorConfig
from sinksdk.engine.clock import Clock
from sinksdk.errors import RetriableException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.closing_signal import ClosingSignal
from sinksdk.runtime.lookout import Lookout
from sinksdk.runtime.status import StatusKeeper

Answer = TypeVar("Answer")

log = logging.getLogger(__name__)

_SILENCE = 5.0  # seconds after which a source that cannot be read is no passing matter


class Horizon:
    """What one driver may read.

    Args:
        config: the connector's.
        lookout: looks at the source.
        status: told of missing topics, and kept alive while the source cannot be read.
        signal: ends the waiting for such a source.
        clock: time.
        is_fixed: whether it stays where it was at the first look: the driver ends when it is caught up.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        lookout: Lookout,
        status: StatusKeeper,
        signal: ClosingSignal,
        clock: Clock,
        *,
        is_fixed: bool,
    ) -> None:
        self._connector = config.name
        self._interval = config.poll_interval_ms / 1000
        self._lookout = lookout
        self._status = status
        self._signal = signal
        self._clock = clock
        self._is_fixed = is_fixed
        self._first: dict[TopicPartition, OffsetRange] | None = None

    @property
    def is_known(self) -> bool:
        """Whether there was a look that left no topic in doubt."""
        return self._first is not None

    def look(self) -> dict[TopicPartition, OffsetRange]:
        """What may be read. A source that is being written to just now is asked again.

        Returns:
            Nothing while the first look has left a topic in doubt, and when the end was asked for meanwhile.

        Raises:
            MissingSourceTopicException: a topic is certainly missing.
            ConnectException: what is there cannot be read.
        """
        available = self.patiently(self._lookout.look)
        if available is None:
            return {}
        self._status.miss(self._lookout.watch.certain)
        alarm = self._lookout.watch.alarm()
        if alarm is not None:
            raise alarm
        if self._first is None:
            # A connector that is started again and again, and fails each time, shall not leave a file of
            # the other topics' first records behind each time.
            if self._lookout.watch.is_in_doubt:
                return {}
            self._first = available
        if self._is_fixed:
            return {p: self._first[p] for p in available if p in self._first}
        return available

    def patiently(self, ask: Callable[[], Answer]) -> Answer | None:
        """What a question is answered with, asked again for as long as the answer is to try later.

        Args:
            ask: the question.

        Returns:
            None when the end, or a rebalance, was asked for meanwhile.
        """
        silent_since, is_told = self._clock.now(), False
        while True:
            try:
                return ask()
            except RetriableException as error:
                is_outage = self._clock.now() - silent_since > _SILENCE and not is_told
                is_told = is_told or is_outage
                level = logging.WARNING if is_outage else logging.INFO
                log.log(level, "connector %s: %s; looking again", self._connector, error)
                self._status.save_if_due()
                if self._signal.wait(self._interval):
                    return None
