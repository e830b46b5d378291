"""Calls of a connector's own code in the driver, in a thread, so that a hang does not block the driver."""

from __future__ import annotations

import contextvars
import inspect
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, Generic, TypeVar

from sinksdk.connector import Connector
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConnectException
from sinksdk.support.hooks import finished
from sinksdk.support.logs import stack_of
from sinksdk.support.threads import start_thread

log = logging.getLogger(__name__)

_POLL: Final = 0.1  # seconds between two checks whether the caller still needs the result
_SLOW: Final = 10.0  # seconds after which a call that has not returned is logged
_FLAG: Final = "is_deleted"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

T = TypeVar("T")


class HangingException(ConnectException):
    """A connector's own code did not return in time; its thread is abandoned."""


class Call(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._context = contextvars.copy_context()  # log lines keep the caller's context
        self._thread: int | None = None
        self.outcome: Future[T] = Future()

    def run(self) -> None:
        self._thread = threading.get_ident()
        try:
            self.outcome.set_result(self._context.run(self._function))
        except BaseException as error:  # noqa: BLE001 - raised again where the outcome is taken
            self.outcome.set_exception(error)

    def wait(self, timeout: float) -> bool:
        return bool(wait([self.outcome], timeout).done)

    @property
    def ended_a_thread(self) -> bool:
        """Whether the call raised ``SystemExit`` or the like in another thread than the caller's."""
        is_error = isinstance(self.outcome.exception(), Exception | None)
        return not is_error and self._thread != threading.get_ident()

    def where(self) -> str:
        """Return the call's stack, outermost first; empty before the call has begun."""
        lines = stack_of(self._thread)
        begun = next(
            (at for at, line in enumerate(lines, 1) if "self._context.run(self._function)" in line), 0
        )
        return "".join(lines[begun:])


class ThreadExecutor:
    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, call: Call[Any]) -> None:
        if self._thread is None:
            # One thread for all calls: an author's objects may be bound to it, such as SQLite connections. A
            # daemon thread, so that a call that hangs does not keep the process alive.
            self._thread = start_thread(self._run, "connector")
        self._calls.put(call)

    def end(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()


class ConnectorCalls:
    """Calls a connector's methods; reports a call that hangs, and abandons it after its time-out."""

    def __init__(
        self,
        connector: Connector,
        name: str,
        clock: Clock,
        executors: Callable[[], ThreadExecutor] = ThreadExecutor,
    ) -> None:
        self._connector = connector
        self._name = name
        self._clock = clock
        self._executors = executors
        self._executor = executors()
        self._last: Call[Any] | None = None

    def call(
        self,
        what: str,
        function: Callable[[], T],
        *,
        timeout: float,
        is_unwanted: Callable[[], bool] = lambda: False,
        grace: float = 0.0,
    ) -> T:
        """Call a method of the connector and wait for it.

        Args:
            timeout: seconds that the method may take.
            is_unwanted: whether the result is no longer needed.
            grace: seconds that the method may still take from then on.
        """
        call = self._begin(function)
        begun = self._clock.now()
        deadline, log_at, is_cut_short = begun + timeout, begun + _SLOW, False
        while not call.wait(_POLL):
            now = self._clock.now()
            if not is_cut_short and is_unwanted():
                deadline, is_cut_short = min(deadline, now + grace), True
            if now >= deadline:
                raise self._abandoned(what, call, now - begun)
            if now >= log_at:
                log.warning(
                    "connector %s: %s has not returned for %.0f s; its stack is\n%s",
                    self._name,
                    what,
                    now - begun,
                    call.where(),
                )
                log_at += 6 * _SLOW
        try:
            return finished(what, call.outcome.result())
        except BaseException as error:
            # SystemExit and the like must not end the driver's thread.
            if not call.ended_a_thread:
                raise
            raise ConnectException(
                f"connector {self._name}: {what} raised {type(error).__name__}: {error}"
            ) from error

    def stop(self, *, is_deleted: bool, timeout: float) -> None:
        """Call ``stop``, with KIP-883's flag if it takes one; log an error or a hang."""
        what = f"stop(is_deleted={is_deleted})"
        try:
            self.call(what, lambda: _stop(self._connector.stop, is_deleted=is_deleted), timeout=timeout)
        except HangingException as error:
            left = "; resources that it should have cleaned up may remain" if is_deleted else ""
            log.error("%s%s", error, left)  # noqa: TRY400 - the trace that matters is in the message
        except Exception:
            log.exception("connector %s: %s raised", self._name, what)
        finally:
            self.end()

    def end(self) -> None:
        self._executor.end()

    def _begin(self, function: Callable[[], T]) -> Call[T]:
        if self._last is not None and not self._last.wait(0):
            self._executor.end()  # ends the thread if the call returns later
            self._executor = self._executors()
        self._last = call = Call(function)
        self._executor.begin(call)
        return call

    def _abandoned(self, what: str, call: Call[Any], seconds: float) -> HangingException:
        stack = call.where()
        return HangingException(
            f"connector {self._name}: {what} has not returned for {seconds:.1f} s; its thread is abandoned"
            + (f"; its stack is\n{stack.rstrip()}" if stack else "")
        )


def _stop(stop: Callable[..., T], *, is_deleted: bool) -> T:
    parameters = list(inspect.signature(stop).parameters.values())
    # Connect's original stop() takes no flag; the parameter of KIP-883's may have any name.
    if any(map(_takes_the_name, parameters)):
        return stop(**{_FLAG: is_deleted})
    if parameters and _may_be_the_flag(parameters[0]):
        return stop(is_deleted)
    return stop()


def _takes_the_name(parameter: inspect.Parameter) -> bool:
    named = parameter.name == _FLAG and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
    return named or parameter.kind is inspect.Parameter.VAR_KEYWORD


def _may_be_the_flag(parameter: inspect.Parameter) -> bool:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return True
    is_flag = parameter.default is inspect.Parameter.empty or isinstance(parameter.default, bool)
    return parameter.kind in _POSITIONAL and is_flag
