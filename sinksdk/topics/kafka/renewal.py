"""Kafka clients that are replaced when they no longer receive responses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException

from sinksdk.errors import RetriableException
from sinksdk.support.threads import Background, in_a_thread

C = TypeVar("C")

# A busy broker responds within seconds; librdkafka's own limit is 60 s.
REPEAT_AFTER: Final = 10.0

# The time is that of two requests: a connector resumes within half a minute after its broker wakes, and a new
# client every 20 s costs a few milliseconds of processor time.
RENEW_AFTER: Final = 20.0

SILENCE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's names for its own errors
        KafkaError._DESTROY,  # noqa: SLF001 - another thread has replaced the client
        KafkaError._RESOLVE,  # noqa: SLF001 - the same
        KafkaError._TIMED_OUT,  # noqa: SLF001 - the same
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001 - the same
        KafkaError._TRANSPORT,  # noqa: SLF001 - the same
        KafkaError._WAIT_COORD,  # noqa: SLF001 - the same
    }
)


def is_silence(error: BaseException) -> bool:
    if isinstance(error, KafkaException):
        return error.args[0].code() in SILENCE
    return isinstance(error, TimeoutError)


# librdkafka never leaves some states. A metadata response that names no broker, as after a broker was frozen
# for longer than its session, makes it drop every broker it knows (confluentinc/librdkafka#5301); an admin
# request that then waits for a broker is never sent. A new client starts with the configured addresses.
class NoBrokersException(RetriableException): ...


@dataclass(slots=True, eq=False)
class _Held(Generic[C]):
    client: C
    users: int = 0
    is_old: bool = False
    silent_since: dict[str, float] = field(default_factory=dict)


class Renewed(Generic[C]):
    """A thread-safe holder of a client that is replaced when it gets no responses for ``RENEW_AFTER``."""

    def __init__(
        self,
        create: Callable[[], C],
        close: Callable[[C], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        background: Background = in_a_thread,
    ) -> None:
        self._create = create
        self._close = close
        self._clock = clock
        self._background = background
        self._lock = threading.Lock()
        self._held: _Held[C] | None = None

    @contextmanager
    def request(self, kind: str) -> Iterator[C]:
        # A client may get responses to some kinds only, for example when one of several brokers is frozen.
        held = self._take()
        began = self._clock()
        try:
            yield held.client
        except NoBrokersException:
            self._drop(held)
            raise
        except Exception as error:
            if is_silence(error):
                self._note_silence(held, kind, began)
            elif isinstance(error, KafkaException):
                held.silent_since.pop(kind, None)
            raise
        else:
            held.silent_since.pop(kind, None)
        finally:
            self._release(held)

    def close(self) -> None:
        with self._lock:
            held, self._held = self._held, None
            if held is None:
                return
            held.is_old = True
            is_unused = not held.users
        if is_unused:
            self._close(held.client)

    def _take(self) -> _Held[C]:
        with self._lock:
            if self._held is None:
                self._held = _Held(self._create())
            self._held.users += 1
            return self._held

    def _note_silence(self, held: _Held[C], kind: str, began: float) -> None:
        since = held.silent_since.setdefault(kind, began)
        if self._clock() - since >= RENEW_AFTER:
            self._drop(held)

    def _drop(self, held: _Held[C]) -> None:
        with self._lock:
            held.is_old = True
            if self._held is held:
                self._held = None

    # Closing may block, so an old client is closed in the background after its last request.
    def _release(self, held: _Held[C]) -> None:
        with self._lock:
            held.users -= 1
            is_done = held.is_old and not held.users
        if is_done:
            self._background(lambda: self._close(held.client))
