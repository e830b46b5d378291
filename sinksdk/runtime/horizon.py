"""How far a driver may read: what the source has, or had when the driver began to catch up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sinksdk.config import ConnectorConfig
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.errors import RetriableException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.lookout import Lookout
from sinksdk.runtime.waits import Waits

Answer = TypeVar("Answer")

_SILENCE = 5.0  # seconds after which a source that cannot be read is no passing matter
_LONGEST = 15.0  # seconds between two attempts at a source that is away; Kafka's client waits as long itself
_HEARD = 0.5  # seconds between two looks whether anybody needs the answer any more


class Horizon:
    """What one driver may read.

    Args:
        config: the connector's.
        lookout: looks at the source.
        status: told of missing topics, and kept alive while the source cannot be read.
        signal: ends the waiting for such a source.
        clock: time.
        is_fixed: whether it stays where it was at the first look: the driver ends when it is caught up.
        is_unwanted: whether the connector shall end; asked every now and then while the source is away.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        lookout: Lookout,
        status: StatusKeeper,
        signal: ClosingSignal,
        clock: WallClock,
        *,
        is_fixed: bool,
        is_unwanted: Callable[[], bool],
    ) -> None:
        self._is_unwanted = is_unwanted
        self._waits = Waits(
            f"connector {config.name}",
            clock,
            first=config.poll_interval_ms / 1000,
            longest=_LONGEST,
            after=_SILENCE,
        )
        self._lookout = lookout
        self._status = status
        self._signal = signal
        self._clock = clock
        self._is_fixed = is_fixed
        self._first: dict[TopicPartition, OffsetRange] | None = None
        self._is_told = False
        self._awaited: frozenset[TopicPartition] = frozenset()

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
        self._status.leave_out(self._lookout.unavailable)
        alarm = self._lookout.watch.alarm()
        if alarm is not None:
            raise alarm
        if self._first is None:
            # A connector that is started again and again, and fails each time, shall not leave a file of
            # the other topics' first records behind each time.
            if self._lookout.watch.is_in_doubt:
                return {}
            self._first = available
            self._awaited = self._lookout.unavailable
        if self._is_fixed:
            # What could not be asked at first is read up to where it ends once it can be.
            answering = self._awaited & (available.keys() - self._first.keys())
            self._first |= {p: available[p] for p in answering}
            return {
                p: OffsetRange(now.start, max(now.start, self._first[p].end))
                for p, now in available.items()
                if p in self._first
            }
        return available

    def patiently(self, ask: Callable[[], Answer]) -> Answer | None:
        """What a question is answered with, asked again for as long as the answer is to try later.

        Args:
            ask: the question.

        Returns:
            None when the end, or a rebalance, was asked for meanwhile.
        """
        begun = self._clock.now()
        while True:
            try:
                answer = ask()
            except RetriableException as error:
                delay, waiting = self._waits.failed(error, since=begun)
                self._is_told = True
                self._status.wait_for(waiting)
                if not self.wait(delay):
                    return None
            else:
                self._waits.over()
                if self._is_told:  # else it may wait for something else
                    self._is_told = False
                    self._status.wait_for(None)
                return answer

    def wait(self, delay: float) -> bool:
        """Wait so many seconds, heard of meanwhile; False when the end, or a rebalance, was asked for."""
        give_up = self._clock.now() + delay
        while (left := give_up - self._clock.now()) > 0:
            if self._is_unwanted() or self._signal.wait(min(left, _HEARD)):
                return False
        return True
