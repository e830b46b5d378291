"""Watches over one running generation, of a sink or a source: newer drivers, closing, the time it takes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from sinksdk.context import ClosingReason
from sinksdk.control.requests import ClosingSignal
from sinksdk.engine.clock import WallClock
from sinksdk.errors import FencedException
from sinksdk.logs import Outage
from sinksdk.store import Store, StoreRefused, StoreUnavailable
from sinksdk.store.generations import Generations
from sinksdk.store.records import Closing, GenerationPlan

log = logging.getLogger(__name__)

_LOOK = 0.1  # seconds between looks whether the job has ended
_ASK = 1.0  # seconds between looks into a near store: progress, newer drivers
_GRACE = 2.0  # seconds beyond the tasks' own time-out until their job is cancelled
_CANCELLED = 30.0  # seconds a cancelled job may take to end


class RunningJob(Protocol):
    """A generation's job."""

    def wait(self, timeout: float) -> bool:
        """Wait at most so many seconds; whether it has ended."""
        ...

    def cancel(self) -> None:
        """End it at once; nothing is cleaned up."""
        ...


class GenerationWatch:
    """Watches over one generation until its job has ended.

    Args:
        store: how often it may be asked.
        connector: the connector's name.
        generations: the driver's hold on it.
        signal: asks to close.
        graceful: seconds the tasks have for closing.
        look: looks at the tasks, and says why the generation shall close, if it shall. Called every second
            or so; must not block. What the store does not answer is asked again.
        on_closing: told that the tasks were asked to close.
        clock: time.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        generations: Generations,
        signal: ClosingSignal,
        *,
        graceful: float,
        look: Callable[[], ClosingReason | None],
        on_closing: Callable[[ClosingReason], None],
        clock: WallClock,
    ) -> None:
        self._connector = connector
        self._generations = generations
        self._signal = signal
        self._graceful = graceful
        self._look_at_tasks = look
        self._on_closing = on_closing
        self._clock = clock
        self._is_followed = False
        self.asked: float | None = None
        """When the tasks were asked to close, on the clock; None if they never were."""
        self._outage = Outage(log, f"watching over the generation of connector {connector}")
        self._ask = max(
            _ASK, store.closing_poll / 2
        )  # a store that is paid by the request is asked less often

    def run(self, running: RunningJob, plan: GenerationPlan) -> bool:
        """Wait for the end of the job; whether it had to be cancelled.

        Raises:
            FencedException: a newer driver exists; the job was cancelled.
        """
        try:
            return self._watch(running, plan)
        except BaseException:
            self._cancel(running)  # nobody watches it any more
            raise

    def _watch(self, running: RunningJob, plan: GenerationPlan) -> bool:
        cancel_at: float | None = None
        next_ask = next_closing = 0.0
        while not running.wait(_LOOK):
            now = self._clock.now()
            if now >= next_ask:
                next_ask = now + self._ask
                self._patiently(plan, lambda: self._look(plan))
            must_close = self._signal.reason is not None or self._is_followed
            if must_close and self.asked is None and now >= next_closing:
                next_closing = now + self._ask
                self._patiently(plan, self._ask_to_close)
                if self.asked is not None or self._signal.is_final:
                    # The end of the process waits for no store. Any other closing does: the tasks have not
                    # heard of it, and what they do is not lost.
                    cancel_at = cancel_at or now + self._graceful + _GRACE
            if cancel_at is not None and now >= cancel_at:
                log.error(
                    "connector %s, generation %d did not close within %g s; its job is cancelled, what was "
                    "not committed is read again",
                    self._connector,
                    plan.generation,
                    self._graceful,
                )
                self._cancel(running)
                return True
        return False

    def _patiently(self, plan: GenerationPlan, ask: Callable[[], None]) -> None:
        """A store that gives no answer, or refuses, ends no generation: its tasks decide for themselves."""
        try:
            ask()
            self._outage.worked()
        except (StoreUnavailable, StoreRefused) as error:
            self._outage.failed("generation %d: %s; looking again", plan.generation, error)

    def _look(self, plan: GenerationPlan) -> None:
        if not self._generations.is_newest():
            raise FencedException(
                f"connector {self._connector}: a newer driver took over while generation "
                f"{plan.generation} ran"
            )
        if not self._is_followed and (successor := self._generations.successor()) is not None:
            log.warning(
                "connector %s: driver %s takes over; generation %d closes, then this driver ends",
                self._connector,
                successor,
                plan.generation,
            )
            self._is_followed = True
        reason = self._look_at_tasks()
        if self._signal.reason is None and reason is not None:
            self._signal.ask(reason, final=False)  # the driver decides what comes after

    def _ask_to_close(self) -> None:
        reason, now = self._signal.reason or ClosingReason.REBALANCE, self._clock.now()
        self._generations.ask_to_close(
            Closing(reason=reason, timeout=self._graceful, asked=self._clock.time())
        )
        self.asked = now
        self._on_closing(reason)

    def _cancel(self, running: RunningJob) -> None:
        running.cancel()
        running.wait(_CANCELLED)
