"""An S3 endpoint that discards data, in its own process: the client's speed is measured, not the server's.

Small objects (owner markers) are kept for reading. The endpoint can refuse some objects' data, or take
requests without ever responding.
"""

from __future__ import annotations

import contextlib
import html
import itertools
import json
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_KEPT = 64 * 1024
_OURS = "/-/"
_STATISTICS = _OURS + "statistics"
_OBJECTS = _OURS + "objects"
_REFUSE = _OURS + "refuse/"
_HANG = _OURS + "hang"


@dataclass(frozen=True)
class NullS3:
    """A running endpoint.

    Args:
        certificate: PEM file to trust (``AWS_CA_BUNDLE``); None over plain http.
    """

    url: str
    certificate: Path | None

    def statistics(self) -> dict[str, int]:
        """Return requests by operation, and ``bytes`` of their bodies, since the last call."""
        return self._ask(_STATISTICS)

    def objects(self) -> dict[str, int]:
        """Return sizes of the objects completed since the last call, by path."""
        return self._ask(_OBJECTS)

    def refuse(self, part: str) -> None:
        """Respond with 403 to data of objects whose path contains this, until :meth:`heal`."""
        self._ask(_REFUSE + urllib.parse.quote(part))

    def hang(self) -> None:
        """Take requests without a response until :meth:`heal`, which cuts off the waiting ones."""
        self._ask(_HANG)

    def heal(self) -> None:
        self._ask(_REFUSE)

    def _ask(self, what: str) -> dict[str, int]:
        context = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
        with urllib.request.urlopen(self.url + what, context=context) as answer:  # noqa: S310 - ours
            found: dict[str, int] = json.load(answer)
        return found


@dataclass
class _Seen:
    counts: Counter[str] = field(default_factory=Counter)
    kept: dict[str, bytes] = field(default_factory=dict)
    uploading: Counter[str] = field(default_factory=Counter)
    whole: dict[str, int] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    ids: Iterator[int] = field(default_factory=itertools.count)
    answers: threading.Event = field(default_factory=threading.Event)

    def refuses(self, path: str) -> bool:
        return bool(self.refused) and self.refused in urllib.parse.unquote(path)


@contextlib.contextmanager
def null_s3(*, tls: bool = True) -> Iterator[NullS3]:
    from benchmarks.certificate import make_certificate  # the endpoint itself is run as a script

    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(Path(folder)) if tls else None
        arguments = [str(certificate)] if certificate else []
        with subprocess.Popen(
            [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                yield NullS3(f"{'https' if tls else 'http'}://127.0.0.1:{port}", certificate)
            finally:
                process.terminate()


class _Connection:
    def __init__(self, stream: socket.socket, seen: _Seen) -> None:
        self._stream = stream
        self._seen = seen
        self._buffer = memoryview(bytearray(1024 * 1024))
        self._ahead = b""

    def serve(self) -> None:
        with self._stream, contextlib.suppress(ConnectionError, ssl.SSLError):
            while self._request():
                pass

    def _request(self) -> bool:
        head = self._read_head()
        if not head:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
        if headers.get("expect") == "100-continue":
            self._stream.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._size = 0
        if headers.get("transfer-encoding") == "chunked":
            body = self._drain_chunked()
        else:
            body = self._drain(int(headers.get("content-length", 0)))
        decoded = headers.get("x-amz-decoded-content-length")
        if decoded is not None:  # chunks within the body, each with a line before it
            self._size, body = int(decoded), _without_chunks(body)
        if not self._seen.answers.is_set() and not target.startswith(_OURS):
            self._seen.answers.wait()
            return False  # the client has given up, or may retry
        self._answer(method, target, body, headers.get("range", ""))
        return True

    def _read_head(self) -> bytes:
        data = self._ahead
        while b"\r\n\r\n" not in data:
            more = self._stream.recv(65536)
            if not more:
                return b""
            data += more
        head, _, self._ahead = data.partition(b"\r\n\r\n")
        return head

    def _drain(self, size: int) -> bytes:
        # The returned body is complete only if it is small.
        start, self._ahead = self._ahead[:size], self._ahead[size:]
        self._seen.counts["bytes"] += size
        self._size += size
        left, kept = size - len(start), bytearray(start)
        while left:
            count = self._stream.recv_into(self._buffer, min(left, len(self._buffer)))
            if not count:
                raise ConnectionError
            if len(kept) < _KEPT:
                kept += self._buffer[:count]
            left -= count
        return bytes(kept)

    def _drain_chunked(self) -> bytes:
        body = b""
        while True:
            size = int(self._line(), 16)
            body = (body + self._drain(size))[:_KEPT]
            self._line()
            if not size:
                return body

    def _line(self) -> bytes:
        while b"\r\n" not in self._ahead:
            self._ahead += self._stream.recv(65536)
        line, _, self._ahead = self._ahead.partition(b"\r\n")
        return line

    def _answer(self, method: str, target: str, body: bytes, wanted: str) -> None:
        path, _, query = target.partition("?")
        status, content = self._reply(method, path, query, body)
        if wanted and status.startswith("200"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            status, content = "206 Partial Content", content[int(first) : int(last) + 1 if last else None]
        head = (
            f'HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nETag: "0123456789abcdef"\r\n'
            f"Content-Type: application/xml\r\n\r\n"
        )
        self._stream.sendall(head.encode() + (b"" if method == "HEAD" else content))

    def _reply(self, method: str, path: str, query: str, body: bytes) -> tuple[str, bytes]:
        if path.startswith(_OURS):
            return "200 OK", self._obey(path)
        if method == "PUT" and self._seen.refuses(path):
            return "403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>"
        asked = urllib.parse.parse_qs(query, keep_blank_values=True)
        if method == "GET" and "uploads" in asked:
            return self._pending(path.strip("/"), asked.get("prefix", [""])[0])
        if "uploadId" in asked or "uploads" in asked:
            return self._upload(method, path, asked.get("uploadId", [""])[0])
        return self._object(method, path, body)

    def _obey(self, path: str) -> bytes:
        if path.startswith(_REFUSE):
            self._seen.refused = urllib.parse.unquote(path.removeprefix(_REFUSE))
            self._seen.answers.set()
            return b"{}"
        if path == _HANG:
            self._seen.answers.clear()
            return b"{}"
        return _told(self._seen.counts if path == _STATISTICS else self._seen.whole)

    def _object(self, method: str, path: str, body: bytes) -> tuple[str, bytes]:
        self._seen.counts[f"{method} object"] += 1
        is_bucket = path.strip("/").count("/") == 0
        if method == "PUT":
            self._seen.kept[path] = body
            self._seen.whole[path] = self._size
            return "200 OK", b""
        if is_bucket:
            return "200 OK", b"<ListBucketResult></ListBucketResult>"
        if path in self._seen.kept and method in ("GET", "HEAD"):
            return "200 OK", self._seen.kept[path]
        return "404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>"

    def _pending(self, bucket: str, prefix: str) -> tuple[str, bytes]:
        self._seen.counts["ListMultipartUploads"] += 1
        begin, of_bucket = f"/{bucket}/{prefix}", len(f"/{bucket}/")
        listed = "".join(
            f"<Upload><Key>{html.escape(key[of_bucket:])}</Key><UploadId>{upload}</UploadId></Upload>"
            for upload, path in self._seen.pending.copy().items()
            if (key := urllib.parse.unquote(path)).startswith(begin)
        )
        return "200 OK", f"<ListMultipartUploadsResult>{listed}</ListMultipartUploadsResult>".encode()

    def _upload(self, method: str, path: str, upload: str) -> tuple[str, bytes]:
        operation = {
            "PUT": "UploadPart",
            "DELETE": "AbortMultipartUpload",
            "POST": "CompleteMultipartUpload" if upload else "CreateMultipartUpload",
        }.get(method, "List")
        self._seen.counts[operation] += 1
        if operation == "CreateMultipartUpload":
            upload = str(next(self._seen.ids))
            self._seen.pending[upload] = path
        elif operation == "UploadPart":
            self._seen.uploading[path] += self._size
        elif operation == "CompleteMultipartUpload":
            self._seen.whole[path] = self._seen.uploading.pop(path, 0)
            self._seen.pending.pop(upload, None)
        elif operation == "AbortMultipartUpload":
            self._seen.uploading.pop(path, None)
            self._seen.pending.pop(upload, None)
        replies: dict[str, tuple[str, bytes]] = {
            "CreateMultipartUpload": (
                "200 OK",
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode(),
            ),
            "CompleteMultipartUpload": (
                "200 OK",
                b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>",
            ),
            "AbortMultipartUpload": ("204 No Content", b""),
            "List": (
                "200 OK",
                b"<ListPartsResult><Part><PartNumber>1</PartNumber><Size>%d</Size></Part></ListPartsResult>"
                % self._seen.uploading[path],
            ),
        }
        return replies.get(operation, ("200 OK", b""))


def _without_chunks(body: bytes) -> bytes:
    # Only the beginning of the body is here.
    content = bytearray()
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not size:
            break  # what follows are checksums
        content += body[:size]
        body = body[size + 2 :]
    return bytes(content)


def _told(found: dict[str, int]) -> bytes:
    # Counting restarts at zero.
    text = json.dumps(found).encode()
    found.clear()
    return text


def _serve(certificate: str | None) -> None:
    context: Any = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    seen = _Seen()
    seen.answers.set()
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            stream, _ = listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_greet, args=(stream, context, seen), daemon=True).start()


def _greet(stream: socket.socket, context: Any, seen: _Seen) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        secured = context.wrap_socket(stream, server_side=True) if context else stream
        _Connection(secured, seen).serve()


if __name__ == "__main__":
    _serve(sys.argv[1] if len(sys.argv) > 1 else None)
