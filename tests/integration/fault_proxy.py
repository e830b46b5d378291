"""Proxies that inject faults: one for S3 over HTTP, one for any TCP connection.

:class:`FaultProxy` is a WSGI layer before moto. It drops requests or responses, answers with errors, delays,
and removes conditions: for the n-th mutation, the next requests of an operation, or all of them.
:class:`TrueToS3` corrects what moto does differently from S3. :class:`TcpProxy` passes bytes through and cuts
connections before a request reaches the server, or before its response reaches the client.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.s3_archiver.faulty_s3 import PROBES, App, Environ, StartResponse, cut, operation_of, refuse

# -- S3 ----------------------------------------------------------------------------------------------

_CONDITIONS: Final = {"If-Match": "HTTP_IF_MATCH", "If-None-Match": "HTTP_IF_NONE_MATCH"}


@dataclass(frozen=True)
class Fault:
    """What happens to one request.

    Args:
        status: the response's status instead of the real one; None with ``cuts`` false passes the
            real response.
        code: S3's error code of that response.
        cuts: whether the connection is closed without a response.
        takes_effect: whether the request reaches S3 nevertheless.
        delay: seconds before anything else.
        forgets_condition: whether If-Match and If-None-Match are removed.
        then: called once the request was served, before the response is sent.
    """

    status: int | None = None
    code: str = ""
    cuts: bool = False
    takes_effect: bool = False
    delay: float = 0.0
    forgets_condition: bool = False
    then: Callable[[], None] | None = None

    @property
    def is_answered_truly(self) -> bool:
        return self.status is None and not self.cuts


DROP_REQUEST: Final = Fault(cuts=True)
# The request takes effect, but its response is lost.
DROP_ANSWER: Final = Fault(cuts=True, takes_effect=True)
SLOW_DOWN: Final = Fault(503, "SlowDown")
CONFLICT: Final = Fault(409, "ConditionalRequestConflict")
INTERNAL_ERROR: Final = Fault(500, "InternalError")
INTERNAL_ERROR_AFTER: Final = Fault(500, "InternalError", takes_effect=True)
# Some S3 servers ignore conditions without an error.
FORGET_CONDITION: Final = Fault(forgets_condition=True)
NOT_IMPLEMENTED: Final = Fault(501, "NotImplemented")


@dataclass(frozen=True)
class Request:
    operation: str
    path: str
    condition: str
    fault: Fault | None


def anything(request: Request) -> bool:
    return True


@dataclass
class FaultProxy:
    """A WSGI application before another one that speaks S3; thread-safe.

    A fault of the n-th mutation precedes one of the next requests of an operation, which precedes a lasting
    one.
    """

    app: App
    requests: list[Request] = field(default_factory=list)
    _nth: dict[int, Fault] = field(default_factory=dict)
    _next: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _lasting: list[tuple[Callable[[Request], bool], Fault]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _mutations: int = 0

    @property
    def mutations(self) -> int:
        return self._mutations

    def at_mutation(self, number: int, fault: Fault) -> None:
        """Inject the fault into the ``number``-th mutation from now on, counted from 1."""
        with self._lock:
            self._nth[self._mutations + number] = fault

    def next(self, operation: str, *faults: Fault) -> None:
        with self._lock:
            self._next[operation].extend(faults)

    def always(self, fault: Fault, which: Callable[[Request], bool] = anything) -> None:
        with self._lock:
            self._lasting.append((which, fault))

    def reset(self) -> None:
        with self._lock:
            self.requests.clear()
            self._nth.clear()
            self._next.clear()
            self._lasting.clear()
            self._mutations = 0

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        fault = self._fault_of(environ)
        if fault is None:
            return self.app(environ, start_response)
        time.sleep(fault.delay)
        if fault.forgets_condition:
            for header in _CONDITIONS.values():
                environ.pop(header, None)
        if fault.is_answered_truly:
            answer = list(self.app(environ, start_response))
            if fault.then:
                fault.then()
            return answer
        if fault.takes_effect:
            list(self.app(environ, lambda *_: None))
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if fault.then:
            fault.then()
        if fault.cuts:
            cut(environ)
        return refuse(environ, start_response, fault.status or 500, fault.code)

    def _fault_of(self, environ: Environ) -> Fault | None:
        seen = Request(
            operation_of(environ),
            environ["PATH_INFO"],
            next((name for name, header in _CONDITIONS.items() if header in environ), ""),
            None,
        )
        with self._lock:
            nth = None
            if environ["REQUEST_METHOD"] in {"PUT", "POST", "DELETE"}:
                self._mutations += 1
                nth = self._nth.pop(self._mutations, None)
            waiting = None if PROBES in seen.path else self._next[seen.operation]
            fault = nth or (waiting.popleft() if waiting else None) or self._lasting_fault(seen)
            self.requests.append(replace(seen, fault=fault))
        return fault

    def _lasting_fault(self, request: Request) -> Fault | None:
        return next((fault for which, fault in self._lasting if which(request)), None)


@dataclass
class TrueToS3:
    """Moto, corrected: CompleteMultipartUpload is atomic per key, and requests for an upload that is gone get NoSuchUpload.

    Moto checks the condition and writes afterwards, so that several conditional completions may win, and
    answers parts of such an upload with 500, which clients retry.
    """

    app: App
    _locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _gone: set[str] = field(default_factory=set)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"PUT", "POST", "DELETE"}:
            return self.app(environ, start_response)
        with self._guard:
            lock = self._locks[environ["PATH_INFO"]]
        upload = parse_qs(environ["QUERY_STRING"]).get("uploadId", [""])[0]
        operation = operation_of(environ)
        if operation == "UploadPart":  # the large operation, which conflicts with no other
            return self._of_upload(upload, environ, start_response)
        with lock:
            if operation == "AbortMultipartUpload":
                self._gone.add(upload)
                return list(self.app(environ, start_response))
            return list(self._of_upload(upload, environ, start_response))

    def _of_upload(self, upload: str, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if upload and upload in self._gone:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return refuse(environ, start_response, 404, "NoSuchUpload")
        return self.app(environ, start_response)


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Write no log line."""


def spoilable_moto() -> FaultProxy:
    return FaultProxy(TrueToS3(DomainDispatcherApplication(create_backend_app)))


@contextmanager
def serving_s3(app: App | None = None) -> Iterator[tuple[str, FaultProxy]]:
    """Serve moto, or another application, behind the proxy.

    Moto keeps buckets as long as the process lives: use unique names.
    """
    proxy = FaultProxy(app) if app else spoilable_moto()
    server = make_server("127.0.0.1", 0, proxy, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- TCP ---------------------------------------------------------------------------------------------

PATIENCE: Final = 60.0  # seconds until a proxy stops waiting for a response

CUT_BEFORE: Final = "before"
CUT_AFTER: Final = "after"
PASS: Final = "pass"
# The server's response does not reach the client, whose connection stays open.
SILENCE: Final = "silence"


@dataclass
class TcpProxy:
    server: tuple[str, int]
    connections: int = 0
    is_refusing: bool = False
    spoiled: list[bytes] = field(default_factory=list)
    _plans: list[tuple[re.Pattern[bytes], str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[socket.socket] = field(default_factory=set)
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def spoil(self, pattern: bytes, *how: str) -> None:
        """Inject faults into the next requests whose bytes match this regular expression.

        At most 64 KiB are searched at a time: match what stands at the beginning of a small request.
        """
        with self._lock:
            self._plans += [(re.compile(pattern, re.DOTALL), each) for each in how]

    def reset(self) -> None:
        with self._lock:
            self._plans.clear()
            self.spoiled.clear()

    def cut_all(self) -> None:
        with self._lock:
            for end in list(self._open):
                _shut(end)

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            if self.is_refusing:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def stop(self) -> None:
        _shut(self._listening)
        self._listening.close()
        self.cut_all()

    def _pass_on(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.server)
        except OSError:
            client.close()
            return
        with closing(client), closing(server):
            with self._lock:
                self._open |= {client, server}
            back = _Back(server, client)
            back.start()
            self._requests(client, server, back)
            back.join()
            with self._lock:
                self._open -= {client, server}

    def _requests(self, client: socket.socket, server: socket.socket, back: _Back) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                how = self._plan_of(data)
                if how == CUT_BEFORE:
                    break
                if how is not None:
                    back.is_muted = True
                server.sendall(data)
                if how == CUT_AFTER:
                    back.swallowed.wait(PATIENCE)
                    break
        _shut(client)
        _shut(server)

    def _plan_of(self, data: bytes) -> str | None:
        with self._lock:
            for plan in self._plans:
                if plan[0].search(data):
                    self._plans.remove(plan)
                    if plan[1] == PASS:
                        return None
                    self.spoiled.append(data)
                    return plan[1]
        return None


class _Back(threading.Thread):
    def __init__(self, server: socket.socket, client: socket.socket) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._client = client
        self.is_muted = False
        self.swallowed = threading.Event()

    def run(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(65536):
                if self.is_muted:
                    self.swallowed.set()
                else:
                    self._client.sendall(data)
        self.swallowed.set()
        if not self.is_muted:
            _shut(self._client)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving_tcp(port: int) -> Iterator[TcpProxy]:
    proxy = TcpProxy(("127.0.0.1", port))
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()
