"""What the server says of itself: version, and whether it lives, is ready and healthy."""

from __future__ import annotations

import time
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from sinksdk.control.herder import Herder
from sinksdk.errors import ConnectException
from sinksdk.server.bodies import Alive, Health, ServerInfo
from sinksdk.server.errors import errors
from sinksdk.server.latest import Latest
from sinksdk.support.confidential import SECRETS

PROBES: Final = ("/live", "/ready")
"""Paths that need no credentials: what probes a process has none, and they tell nothing else."""

_UNAVAILABLE: Final = 503
_MAY_BE: Final[dict[int | str, dict[str, Any]]] = {**errors(), _UNAVAILABLE: {"model": Health}}


class StoreHealth:
    """Whether the store answers; found out within two seconds.

    Args:
        herder: of the store.
    """

    def __init__(self, herder: Herder) -> None:
        self._look = Latest(herder.connectors)

    async def problem(self) -> str | None:
        """What is wrong; None: it answers."""
        answer = await self._look.get()
        if answer is None:
            seconds = time.monotonic() - self._look.asked_at
            return f"The store has not answered for {seconds:.1f} s."
        if answer.error is None:
            return None
        if not isinstance(answer.error, ConnectException):
            raise answer.error
        return f"The store does not answer: {SECRETS.hide(str(answer.error))}"


def admin_router(health: StoreHealth, version: str, store_id: str) -> APIRouter:
    """The server's own paths.

    Args:
        health: of the store.
        version: of sinksdk.
        store_id: stands where Connect has its cluster's id.
    """
    router = APIRouter(tags=["server"])

    @router.get("/", responses=errors())
    def server() -> ServerInfo:
        """Version and store."""
        return ServerInfo(version=version, commit="", kafka_cluster_id=store_id)

    # None of these is left to a pool of threads: those may all be waiting for the store.

    @router.get("/health", response_model=Health, responses=_MAY_BE)
    async def healthy() -> Any:
        """Whether the store answers (KIP-1017); known within 2 s, whatever the store does."""
        problem = await health.problem()
        if problem is not None:
            return unhealthy(problem)
        return Health(status="healthy", message="Worker has completed startup and is ready.")

    @router.get("/ready", response_model=Health, responses=_MAY_BE)
    async def ready() -> Any:
        """As ``/health``, without credentials, and without a word on what is wrong."""
        if await health.problem() is not None:
            return unhealthy("The store does not answer.")
        return Health(status="healthy", message="Worker has completed startup and is ready.")

    @router.get("/live", responses=errors())
    async def live() -> Alive:
        """That the process answers, whatever it waits for; without credentials."""
        return Alive()

    return router


def unhealthy(message: str) -> JSONResponse:
    """503, in KIP-1017's words."""
    return JSONResponse(Health(status="unhealthy", message=message).model_dump(), status_code=_UNAVAILABLE)
