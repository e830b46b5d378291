"""A broker with one topic, whose responses can omit all brokers, as those of a fenced one do.

It supports ApiVersions and Metadata, in librdkafka's newest versions.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from contextlib import suppress
from typing import Self

_METADATA, _API_VERSIONS = 3, 18
_NEWEST = {_METADATA: 12, _API_VERSIONS: 3}
_LEADER_NOT_AVAILABLE = 5
_NO_OPERATIONS = -(2**31)  # authorized operations, which were not requested


class FakeBroker:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.topic_id = uuid.uuid4()
        self.names_brokers = True
        """If false, metadata responses name no broker, and the topic has no leader."""
        self.forgotten = 0
        """Number of responses that named no broker."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection.makefile("rb") as requests:
            while size := requests.read(4):
                request = requests.read(struct.unpack(">i", size)[0])
                key, version, correlation = struct.unpack(">hhi", request[:8])
                body = self._versions(version) if key == _API_VERSIONS else self._metadata(version)
                # Only ApiVersions has a header without tags, so that clients of any version read it.
                tags = b"" if key == _API_VERSIONS or version < 9 else b"\0"
                response = struct.pack(">i", correlation) + tags + body
                connection.sendall(struct.pack(">i", len(response)) + response)

    def _versions(self, version: int) -> bytes:
        rows = [struct.pack(">hhh", key, 0, newest) for key, newest in _NEWEST.items()]
        if version < 3:
            throttled = struct.pack(">i", 0) if version else b""
            return struct.pack(">hi", 0, len(rows)) + b"".join(rows) + throttled
        return b"\0\0" + _compact([row + b"\0" for row in rows]) + struct.pack(">i", 0) + b"\0"

    def _metadata(self, version: int) -> bytes:
        assert 9 <= version <= 12, f"version {version} has another form"
        is_known = self.names_brokers
        self.forgotten += not is_known
        brokers = [struct.pack(">i", 1) + _text("127.0.0.1") + struct.pack(">i", self.port) + b"\0\0"]
        replicas = _compact([struct.pack(">i", 1)])
        partition = struct.pack(">hiii", 0, 0, 1, 0) + replicas + replicas + _compact([]) + b"\0"
        topic_id = self.topic_id.bytes if version >= 10 else b""
        topic = (
            struct.pack(">h", 0 if is_known else _LEADER_NOT_AVAILABLE) + _text(self.topic) + topic_id + b"\0"
        )
        topic += _compact([partition] if is_known else []) + struct.pack(">i", _NO_OPERATIONS) + b"\0"
        operations = struct.pack(">i", _NO_OPERATIONS) if version <= 10 else b""
        return (
            struct.pack(">i", 0)
            + _compact(brokers if is_known else [])
            + _text("cluster")
            + struct.pack(">i", 1 if is_known else -1)
            + _compact([topic])
            + operations
            + b"\0"
        )


def _compact(items: list[bytes]) -> bytes:
    # Encode an array of fewer than 127 items.
    return bytes([len(items) + 1]) + b"".join(items)


def _text(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()
