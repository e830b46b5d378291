"""Ports of this machine for servers that tests start, and for servers that do not run."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_BELOW_EPHEMERAL = range(15_000, 32_000)
_CHOICE = random.SystemRandom()  # Hypothesis seeds the module's own generator: processes would draw the same


def free_port(count: int = 1) -> int:
    """Return the first of ``count`` free ports in a row.

    They are below the range of outgoing connections and of port 0: a server that starts late, or again, finds
    its port still free.
    """
    while True:
        first = _CHOICE.choice(_BELOW_EPHEMERAL)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections and that no other process gets during the block."""
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
