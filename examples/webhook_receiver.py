"""An endpoint to try the webhook sink with: ``python examples/webhook_receiver.py 5555``.

It accepts each record once, by its id, and a request as a whole or not at all.
"""

import json
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, NamedTuple


class Mishap(NamedTuple):
    """The response to a request instead of `200 OK`."""

    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}
    is_accepted: bool = False  # its records are accepted nevertheless
    is_lost: bool = False  # the connection ends without a response


def is_valid(event: Mapping[str, Any]) -> bool:
    """Reject records whose temperature is a text."""
    value = event["value"]
    return not isinstance(value, dict) or not isinstance(value.get("celsius"), str)


class Endpoint:
    def __init__(self, token: str = "") -> None:
        self.token = token
        self.is_valid: Callable[[Mapping[str, Any]], bool] = is_valid
        self.rejected_status: int = HTTPStatus.UNPROCESSABLE_ENTITY
        self.mishaps: deque[Mishap] = deque()  # of the next requests
        self.requests: list[tuple[Mapping[str, str], Sequence[Mapping[str, Any]]]] = []  # headers and events
        self.events: dict[str, Mapping[str, Any]] = {}  # accepted, by id, in order
        self.repeated = 0  # events received again
        self.lock = Lock()

    def answer(self, headers: Mapping[str, str], body: str) -> tuple[Mishap, str]:
        with self.lock:
            events = events_in(headers["Content-Type"], body)
            self.requests.append((headers, events))
            mishap = self.mishaps.popleft() if self.mishaps else Mishap(is_accepted=True)
            if not mishap.is_accepted:
                return mishap, "injected"
            if self.token and headers.get("Authorization") != f"Bearer {self.token}":
                return Mishap(HTTPStatus.UNAUTHORIZED), "authentication failed"
            if rejected := [event["id"] for event in events if not self.is_valid(event)]:
                return Mishap(self.rejected_status), f"celsius must be a number: {rejected[0]}"
            new = {event["id"]: event for event in events if event["id"] not in self.events}
            self.repeated += len(events) - len(new)
            self.events |= new
            return mishap, f"{len(new)} are new"

    def summary(self) -> str:
        counts = f"{len(self.events)} records in {len(self.requests)} requests"
        return f"{counts}, {self.repeated} of them repeated"


def events_in(content_type: str, body: str) -> Sequence[Mapping[str, Any]]:
    if content_type == "application/x-ndjson":
        return [json.loads(line) for line in body.splitlines()]
    events: list[Mapping[str, Any]] = json.loads(body)
    return events


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True  # a response in two packets would be delayed by 40 ms
    endpoint: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        mishap, text = self.endpoint.answer(dict(self.headers), body)
        if mishap.is_lost:
            self.close_connection = True
            return
        self.say(mishap.status, text, mishap.headers)

    def do_GET(self) -> None:
        self.say(HTTPStatus.OK, self.endpoint.summary())

    def say(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        content = f"{text}\n".encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def server_of(endpoint: Endpoint, port: int = 0) -> ThreadingHTTPServer:
    """Create a server on the loopback interface; port 0 is any free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), {"endpoint": endpoint}))


if __name__ == "__main__":
    server_of(Endpoint(*sys.argv[2:]), int(sys.argv[1])).serve_forever()
