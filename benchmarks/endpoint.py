"""An S3 endpoint that takes everything and keeps only markers: what remains is the cost of the client.

``python -m benchmarks.endpoint`` serves HTTP on a free loopback port, prints the port, and ends with
its standard input.
"""

from __future__ import annotations

import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK = 1 << 20
_SMALL = 4096  # bytes of an object that is kept: owner markers are read back
_kept: dict[str, bytes] = {}


class _Handler(socketserver.StreamRequestHandler):
    """Just enough HTTP: reads a request to its end and answers what an S3 client wants to hear."""

    rbufsize = 1 << 16
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self._sink = bytearray(_CHUNK)
        while self._one_request():
            pass

    def _one_request(self) -> bool:
        line = self.rfile.readline()
        if not line.strip():
            return False
        method, target, _ = line.decode().split(" ", 2)
        headers = {}
        while (line := self.rfile.readline()).strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if "100-continue" in headers.get("expect", ""):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = int(headers.get("content-length", 0))
        if method == "PUT" and "partNumber" not in target and size <= _SMALL:
            _kept[target] = self.rfile.read(size)
        else:
            self._drain(size)
        self._answer(method, target)
        return True

    def _drain(self, left: int) -> None:
        view = memoryview(self._sink)
        while left > 0:
            left -= self.rfile.readinto1(view[: min(left, _CHUNK)])

    def _answer(self, method: str, target: str) -> None:
        body, extra, status = b"", "", "200 OK"
        if method == "GET" and target in _kept:
            body = _kept[target]
        elif method == "GET":
            status = "404 Not Found"
            body = b"<Error><Code>NoSuchKey</Code></Error>"
        elif method == "POST" and "uploads" in target:
            body = (
                b"<InitiateMultipartUploadResult><UploadId>upload</UploadId></InitiateMultipartUploadResult>"
            )
        elif method == "POST":
            body = b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>'
        elif method == "PUT":
            extra = 'ETag: "e"\r\n'
        self.wfile.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\n"
            f"Content-Length: {len(body)}\r\n{extra}\r\n".encode()
            + body
        )


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def null_s3() -> Iterator[str]:
    """Its URL, while it runs in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.endpoint"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.wait(10)


if __name__ == "__main__":
    with _Server(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
