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
from sinksdk.server.errors import NotFoundException, answer, errors
from sinksdk.server.parameters import Name
from sinksdk.spark.task_slots import ReadTaskSlots
from sinksdk.store import StoreUnavailable
from sinksdk.support.confidential import SECRETS
from sinksdk.support.threads import start_thread

T = TypeVar("T")

PATIENCE: Final = 1.5
"""Seconds; a probe waits one or two by default."""

_OVERDUE_PATIENCE: Final = 0.4  # seconds, of what is left of the two
_UNAVAILABLE: Final = 503
_HEALTHY: Final = Health(status="healthy", message="Worker has completed startup and is ready.")
_MAY_BE: Final[dict[int | str, dict[str, Any]]] = {**errors(), _UNAVAILABLE: {"model": Health}}


class Latest(Generic[T]):
    """A question that may take long, and its latest answer, whatever the store does.

    One background request at a time, whose result all concurrent callers get.

    Args:
        patience: seconds that a caller waits at most.
    """

    def __init__(self, ask: Callable[[], T], *, patience: float = PATIENCE) -> None:
        self._ask = ask
        self._patience = patience
        self._lock = threading.Lock()
        self._asked: Future[T] | None = None
        self.asked_at = time.monotonic()
        """When the question was asked that is not answered yet, or the last one."""
        self.last: tuple[Future[T], float] | None = None
        """The latest answer there was, or how the question failed instead, and when."""

    async def get(self) -> Future[T] | None:
        """A result newer than the call; None: there is none in time."""
        with self._lock:
            asked = self._asked or self._begin()
        answer = asyncio.wrap_future(asked)
        # Nobody may wait any more when it fails: asyncio would log that as an error.
        answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        # Shielded: a caller that stops waiting does not cancel the request of the others.
        waiting = asyncio.shield(answer)
        with suppress(Exception):  # raised where the result is taken
            await asyncio.wait_for(waiting, self._patience)
        return asked if asked.done() else None

    def _begin(self) -> Future[T]:
        asked = self._asked = Future[T]()
        self.asked_at = time.monotonic()
        # A daemon, and none of a pool's: the process ends without it.
        start_thread(lambda: self._run(asked), "latest")
        return asked

    def _run(self, asked: Future[T]) -> None:
        try:
            answer = partial(asked.set_result, self._ask())
        except Exception as error:  # noqa: BLE001 - raised where the result is taken
            answer = partial(asked.set_exception, error)
        with self._lock:
            self._asked, self.last = None, (asked, time.monotonic())
        answer()


# -- health ------------------------------------------------------------------------------------------


class StoreHealth:
    """Whether the store answers; found out within two seconds."""

    def __init__(self, herder: Herder) -> None:
        self._look = Latest(herder.connectors)
        self._overdue = Latest(herder.overdue, patience=_OVERDUE_PATIENCE)

    async def problem(self) -> str | None:
        """The problem; None: the store responds."""
        answer = await self._look.get()
        if answer is None:
            seconds = time.monotonic() - self._look.asked_at
            return f"The store has not answered for {seconds:.1f} s."
        try:
            answer.result()
        except ConnectException as error:
            return f"The store does not answer: {SECRETS.hide(str(error))}"
        return None

    async def failure(self) -> str | None:
        """Connectors for which nothing has been planned for too long; None: there are none, as far as known.

        Of so many that the store does not respond in time, those of the last response.
        """
        found = await self._overdue.get()
        if found is None and self._overdue.last is not None:
            found = self._overdue.last[0]
        if found is None or found.exception() is not None or not found.result():
            return None
        return " ".join(f"Connector {name}: {why}." for name, why in found.result().items())


def admin_router(health: StoreHealth, version: str, store_id: str) -> APIRouter:
    """Version and health; ``store_id`` stands where Connect has its cluster's id."""
    router = APIRouter(tags=["server"])

    @router.get("/", responses=errors())
    def server() -> ServerInfo:
        """Version and store."""
        return ServerInfo(version=version, commit="", kafka_cluster_id=store_id)

    # None of these is left to a pool of threads: those may all be waiting for the store.

    @router.get("/health", response_model=Health, responses=_MAY_BE)
    async def healthy() -> Any:
        """Whether the store answers (KIP-1017), and no connector has failed to plan for too long.

        Known within 2 s, whatever the store does. Not for probes that restart the server: it retries itself.
        """
        # One after the other: a store that hangs is asked once.
        if (reason := await health.problem() or await health.failure()) is not None:
            return unhealthy(SECRETS.hide(reason))
        return _HEALTHY

    @router.get("/ready", response_model=Health, responses=_MAY_BE)
    async def ready() -> Any:
        """Whether the store answers, without credentials, and without the reason."""
        if await health.problem() is not None:
            return unhealthy("The store does not answer.")
        return _HEALTHY

    @router.get("/live", responses=errors())
    async def live() -> Alive:
        """That the process answers, whatever it waits for; without credentials."""
        return Alive()

    return router


def waiting_router(why: Callable[[], str]) -> APIRouter:
    """Answers everything while the server waits for its store; ``why`` says what it waits for."""
    router = APIRouter()

    @router.get("/live")
    async def live() -> Alive:
        return Alive()

    @router.get("/ready")
    async def ready() -> Any:
        return unhealthy("The store does not answer.")

    @router.get("/health")
    async def health() -> Any:
        return unhealthy(why())

    @router.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async def anything(path: str) -> Any:  # noqa: ARG001 - whatever it is
        return answer(503, why())

    return router


def unhealthy(message: str) -> JSONResponse:
    """503, in KIP-1017's words."""
    return JSONResponse(Health(status="unhealthy", message=message).model_dump(), status_code=_UNAVAILABLE)


# -- metrics -----------------------------------------------------------------------------------------

_TEXT: dict[str, Any] = {"content": {"text/plain": {}, "application/openmetrics-text": {}}}
_OLDEST: Final = 90.0  # seconds: Prometheus asks each minute, or more often


def metrics_router(herder: Herder, health: StoreHealth, task_slots: ReadTaskSlots) -> APIRouter:
    """What Prometheus asks for."""
    router = APIRouter(tags=["server"])
    latest: dict[str, Latest[tuple[bytes, str]]] = {}  # by format: there are a few

    @router.get("/metrics", response_class=Response, responses={**errors(), 200: _TEXT})
    async def metrics(accept: Annotated[str, Header()] = "") -> Response:
        """Metrics of all connectors, in Prometheus's text format or OpenMetrics, within 2 s.

        Where there are too many for that, each scrape gets what the one before has asked for. While the
        store does not answer there are no numbers.
        """
        ask = latest.setdefault(
            choose_encoder(accept)[1], Latest(lambda: exposition(herder, accept, task_slots()))
        )
        before = ask.last
        now, problem = await asyncio.gather(ask.get(), health.problem())
        if now is None and problem is None and before is not None and ask.asked_at - before[1] < _OLDEST:
            now = before[0]
        return _response(now, problem)

    return router


def _response(found: Future[tuple[bytes, str]] | None, problem: str | None) -> Response:
    if found is None:
        raise StoreUnavailable(
            problem or "the metrics of so many connectors are not collected yet; ask again"
        )
    body, content_type = found.result()
    return Response(body, headers={"Content-Type": content_type})


# -- log levels --------------------------------------------------------------------------------------

_LEVELS: Final = {
    "OFF": logging.CRITICAL + 1,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
"""Log4j's levels, which Connect's clients send."""

_ROOT: Final = "root"
_OURS: Final = "sinksdk"
"""The logger that Connect's root stands for here: other libraries' are left alone."""

loggers_router = APIRouter(tags=["server"])
"""Log levels, as Connect's clients read and change them."""


@loggers_router.get("/admin/loggers", responses=errors())
def loggers() -> dict[str, LoggerLevel]:
    """Loggers of sinksdk with a level of their own, and ``root``, which stands for all of them."""
    names = sorted(name for name in logging.root.manager.loggerDict if _is_ours(name))
    own = {name: _level(name) for name in names if logging.getLogger(name).level}
    return {_ROOT: _level(_OURS), **own}


@loggers_router.get("/admin/loggers/{name}", responses=errors(404))
def logger(name: Name) -> LoggerLevel:
    """A logger's level."""
    if name != _ROOT and name not in logging.root.manager.loggerDict:
        raise NotFoundException(f"Logger {name} not found.")
    return _level(_OURS if name == _ROOT else name)


@loggers_router.put("/admin/loggers/{name}", responses=errors(400, 404, 415))
def set_level(name: Name, wanted: Level) -> list[str]:
    """Change the level of a logger; names of those that are changed."""
    if wanted.level.upper() not in _LEVELS:
        raise NotFoundException(f"invalid log level '{wanted.level}'; there are {', '.join(_LEVELS)}")
    if name != _ROOT and not _is_ours(name):
        raise ConfigException(f"logger '{name}' is none of sinksdk's")
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

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Headers of pages: injected code would run with the reader's rights."""


def page_router() -> APIRouter:
    """The status page and what it consists of; read once."""
    folder = files("sinksdk.server") / "ui"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    router = APIRouter(include_in_schema=False)

    @router.get("/ui")
    def page(request: Request) -> Response:
        # Its files have relative addresses, since a proxy may have put the server below a path of its own: so
        # the slash matters here, and elsewhere it does not.
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
