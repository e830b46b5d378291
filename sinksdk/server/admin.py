"""The server's own paths: version, health, metrics, log levels, and the status page."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from prometheus_client.exposition import choose_encoder

from sinksdk.control.herder import Herder
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.metrics.prometheus import exposition
from sinksdk.server.bodies import Alive, Health, Level, LoggerLevel, ServerInfo
from sinksdk.server.errors import NotFoundException, error_response, errors
from sinksdk.server.parameters import Name
from sinksdk.spark.task_slots import ReadTaskSlots
from sinksdk.store import StoreUnavailable
from sinksdk.support.confidential import SECRETS
from sinksdk.support.threads import start_thread

T = TypeVar("T")

PATIENCE: Final = 1.5  # seconds; probes wait one or two seconds by default

_OVERDUE_PATIENCE: Final = 0.4  # seconds, after PATIENCE still within two seconds
_UNAVAILABLE: Final = 503
_HEALTHY: Final = Health(status="healthy", message="Worker has completed startup and is ready.")
_MAY_BE: Final[dict[int | str, dict[str, Any]]] = {**errors(), _UNAVAILABLE: {"model": Health}}


class BoundedRequest(Generic[T]):
    """Runs one blocking request at a time in a thread, and bounds how long its callers wait."""

    def __init__(self, request: Callable[[], T], *, patience: float = PATIENCE) -> None:
        self._request = request
        self._patience = patience
        self._lock = threading.Lock()
        self._running: Future[T] | None = None
        self.started_at = time.monotonic()  # start of the running request, or of the last one
        # The last completed request, and its time.
        self.last: tuple[Future[T], float] | None = None

    async def get(self) -> Future[T] | None:
        with self._lock:
            running = self._running or self._start()
        response = asyncio.wrap_future(running)
        # Reading the exception keeps asyncio from logging it when no caller waits any more.
        response.add_done_callback(lambda done: done.cancelled() or done.exception())
        with suppress(Exception):  # ``result()`` raises the exception
            # The request is shielded, because a caller that stops waiting must not cancel it for the others.
            await asyncio.wait_for(asyncio.shield(response), self._patience)
        return running if running.done() else None

    def _start(self) -> Future[T]:
        running = self._running = Future[T]()
        self.started_at = time.monotonic()
        # The daemon thread is outside of any pool, so that it does not delay the end of the process.
        start_thread(lambda: self._run(running), "request")
        return running

    def _run(self, running: Future[T]) -> None:
        try:
            complete = partial(running.set_result, self._request())
        except Exception as error:  # noqa: BLE001 - raised by result()
            complete = partial(running.set_exception, error)
        with self._lock:
            self._running, self.last = None, (running, time.monotonic())
        complete()


# -- health ------------------------------------------------------------------------------------------


class StoreHealth:
    def __init__(self, herder: Herder) -> None:
        self._names = BoundedRequest(herder.connectors)
        self._overdue = BoundedRequest(herder.overdue, patience=_OVERDUE_PATIENCE)

    async def problem(self) -> str | None:
        response = await self._names.get()
        if response is None:
            seconds = time.monotonic() - self._names.started_at
            return f"The store has not responded for {seconds:.1f} s."
        try:
            response.result()
        except ConnectException as error:
            return f"The store does not respond: {SECRETS.hide(str(error))}"
        return None

    async def failure(self) -> str | None:
        """Name connectors for which nothing has been planned for too long."""
        # If the store takes too long to read all connectors, the last result counts.
        found = await self._overdue.get()
        if found is None and self._overdue.last is not None:
            found = self._overdue.last[0]
        if found is None or found.exception() is not None or not found.result():
            return None
        return " ".join(f"Connector {name}: {why}." for name, why in found.result().items())


def admin_router(health: StoreHealth, version: str, store_id: str) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get("/", responses=errors())
    def server() -> ServerInfo:
        """Return version and store."""
        return ServerInfo(version=version, commit="", kafka_cluster_id=store_id)

    # Coroutines: the threads of the pool for other handlers may all be waiting for the store.

    @router.get("/health", response_model=Health, responses=_MAY_BE)
    async def healthy() -> Any:
        """Check that the store responds (KIP-1017), and that each connector could plan lately.

        Responds within 2 s. Do not let a probe on this path restart the server, which retries by itself.
        """
        # The requests are sequential: if the first one hangs, the second one is not sent.
        if (reason := await health.problem() or await health.failure()) is not None:
            return unhealthy(SECRETS.hide(reason))
        return _HEALTHY

    @router.get("/ready", response_model=Health, responses=_MAY_BE)
    async def ready() -> Any:
        """Check that the store responds. Needs no authentication, and the response gives no reason."""
        if await health.problem() is not None:
            return unhealthy("The store does not respond.")
        return _HEALTHY

    @router.get("/live", responses=errors())
    async def live() -> Alive:
        """Respond while the process is alive, even if it waits for its store. Needs no authentication."""
        return Alive()

    return router


def waiting_router(why: Callable[[], str]) -> APIRouter:
    router = APIRouter()

    @router.get("/live")
    async def live() -> Alive:
        return Alive()

    @router.get("/ready")
    async def ready() -> Any:
        return unhealthy("The store does not respond.")

    @router.get("/health")
    async def health() -> Any:
        return unhealthy(why())

    @router.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async def anything(path: str) -> Any:  # noqa: ARG001 - the route's parameter
        return error_response(503, why())

    return router


def unhealthy(message: str) -> JSONResponse:
    return JSONResponse(Health(status="unhealthy", message=message).model_dump(), status_code=_UNAVAILABLE)


# -- metrics -----------------------------------------------------------------------------------------

_TEXT: dict[str, Any] = {"content": {"text/plain": {}, "application/openmetrics-text": {}}}
_OLDEST: Final = 90.0  # seconds: Prometheus usually scrapes every minute, or more often


def metrics_router(herder: Herder, health: StoreHealth, task_slots: ReadTaskSlots) -> APIRouter:
    router = APIRouter(tags=["server"])
    scrapes: dict[str, BoundedRequest[tuple[bytes, str]]] = {}  # scrapes by Content-Type

    @router.get("/metrics", response_class=Response, responses={**errors(), 200: _TEXT})
    async def metrics(accept: Annotated[str, Header()] = "") -> Response:
        """Return the metrics of all connectors, in Prometheus's text format or OpenMetrics, within 2 s.

        If reading all connectors takes longer, a scrape returns the result of the previous one. While the
        store does not respond, the response is 503.
        """
        scrape = scrapes.setdefault(
            choose_encoder(accept)[1], BoundedRequest(lambda: exposition(herder, accept, task_slots()))
        )
        before = scrape.last
        now, problem = await asyncio.gather(scrape.get(), health.problem())
        if now is None and problem is None and before is not None and scrape.started_at - before[1] < _OLDEST:
            now = before[0]
        return _metrics_response(now, problem)

    return router


def _metrics_response(found: Future[tuple[bytes, str]] | None, problem: str | None) -> Response:
    if found is None:
        raise StoreUnavailable(
            problem or "collecting the metrics of all connectors takes longer than 2 s; retry"
        )
    body, content_type = found.result()
    return Response(body, headers={"Content-Type": content_type})


# -- log levels --------------------------------------------------------------------------------------

# Log4j's levels, as Kafka Connect's clients send them.
_LEVELS: Final = {
    "OFF": logging.CRITICAL + 1,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}

_ROOT: Final = "root"
# Kafka Connect's "root" stands for this logger, so that loggers of other libraries stay unchanged.
_OURS: Final = "sinksdk"

loggers_router = APIRouter(tags=["server"])


@loggers_router.get("/admin/loggers", responses=errors())
def loggers() -> dict[str, LoggerLevel]:
    """List the loggers of sinksdk with their own level, and ``root``, which stands for all of them."""
    names = sorted(name for name in logging.root.manager.loggerDict if _is_ours(name))
    own = {name: _level(name) for name in names if logging.getLogger(name).level}
    return {_ROOT: _level(_OURS), **own}


@loggers_router.get("/admin/loggers/{name}", responses=errors(404))
def logger(name: Name) -> LoggerLevel:
    """Return a logger's level."""
    if name != _ROOT and name not in logging.root.manager.loggerDict:
        raise NotFoundException(f"Logger {name} not found.")
    return _level(_OURS if name == _ROOT else name)


@loggers_router.put("/admin/loggers/{name}", responses=errors(400, 404, 415))
def set_level(name: Name, wanted: Level) -> list[str]:
    """Change a logger's level; return the names of the changed loggers."""
    if wanted.level.upper() not in _LEVELS:
        raise NotFoundException(f"unknown log level '{wanted.level}': use one of {', '.join(_LEVELS)}")
    if name != _ROOT and not _is_ours(name):
        raise ConfigException(f"logger '{name}' does not belong to sinksdk")
    changed = _OURS if name == _ROOT else name
    logging.getLogger(changed).setLevel(_LEVELS[wanted.level.upper()])
    return [changed]


def _is_ours(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == _OURS


def _level(name: str) -> LoggerLevel:
    level = logging.getLogger(name).getEffectiveLevel()
    return LoggerLevel(level=next((word for word, number in _LEVELS.items() if number == level), "INFO"))


# -- status page -------------------------------------------------------------------------------------

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Injected code would run with the reader's permissions.
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_router() -> APIRouter:
    folder = files("sinksdk.server") / "ui"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    router = APIRouter(include_in_schema=False)

    @router.get("/ui")
    def page(request: Request) -> Response:
        # A proxy may prefix the path, so the page's URLs are relative and need the trailing slash.
        if not request.scope["raw_path"].endswith(b"/"):
            return RedirectResponse("ui/", status_code=307)
        return file("index.html")

    @router.get("/ui/{name}")
    def file(name: str) -> Response:
        suffix = name[name.rfind(".") :]
        if name not in found or suffix not in _TYPES:
            raise NotFoundException(f"the status page has no file '{name}'")
        return Response(found[name], media_type=_TYPES[suffix], headers=_HEADERS)

    return router
