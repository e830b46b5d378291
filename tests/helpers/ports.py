"""Ports of this machine for servers that tests start, and for servers that do not run."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_BELOW_EPHEMERAL = range(15_000, 32_000)
# Hypothesis seeds the module ``random``: all processes would draw the same ports
_CHOICE = random.SystemRandom()


def free_port(count: int = 1) -> int:
    # Ports below those of outgoing connections and of port 0 stay free, also for a server that starts late or
    # restarts.
    while True:
        first = _CHOICE.choice(_BELOW_EPHEMERAL)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@contextmanager
def closed_port() -> Iterator[int]:
    # A bound port is given to no other process, and refuses connections while nothing listens.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
