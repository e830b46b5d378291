"""A TCP proxy in front of a server; it refuses and breaks connections on request."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.helpers.ports import free_port

_CHUNK = 65_536


class Gate:
    """Forwards connections on the loopback interface, from a port of its own.

    Args:
        port: the server's port.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.port = free_port()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def shut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # the gate is closed
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._connections |= {client, server}
            if self._listener is not listener:
                self.shut()
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(_CHUNK):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._connections.discard(one)
        one.close()
