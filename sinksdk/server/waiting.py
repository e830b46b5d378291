"""What a server answers while it waits for its store and can begin nothing yet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fastapi import FastAPI

from sinksdk.server.admin import unhealthy
from sinksdk.server.app import protect
from sinksdk.server.auth import Credentials
from sinksdk.server.bodies import Alive
from sinksdk.server.errors import answer
from sinksdk.server.page import page_router


def create_waiting_app(
    why: Callable[[], str], credentials: Credentials | None = None, *, hosts: Collection[str] | None = None
) -> FastAPI:
    """An application that lives, is not ready, and says why.

    Args:
        why: says what it waits for.
        credentials: who hears that.
        hosts: as :class:`~sinksdk.server.guard.Guard` takes them.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(page_router())

    @app.get("/live")
    async def live() -> Alive:
        return Alive()

    @app.get("/ready")
    async def ready() -> Any:
        return unhealthy("The store does not answer.")

    @app.get("/health")
    async def health() -> Any:
        return unhealthy(why())

    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async def anything(path: str) -> Any:  # noqa: ARG001 - whatever it is
        return answer(503, why())

    protect(app, credentials, hosts)
    return app
