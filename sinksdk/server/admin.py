"""What the server says of itself: version and health."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from sinksdk.errors import ConnectException
from sinksdk.runtime.herder import Herder
from sinksdk.server.bodies import Health, ServerInfo
from sinksdk.server.errors import errors


def admin_router(herder: Herder, version: str, store_id: str) -> APIRouter:
    """The server's own paths.

    Args:
        herder: of the store.
        version: of sinksdk.
        store_id: stands where Connect has its cluster's id.
    """
    router = APIRouter(tags=["server"])

    @router.get("/", responses=errors())
    def server() -> ServerInfo:
        """Version and store."""
        return ServerInfo(version=version, commit="", kafka_cluster_id=store_id)

    @router.get("/health", response_model=Health, responses={**errors(), 503: {"model": Health}})
    def health() -> Any:
        """Whether the store answers (KIP-1017)."""
        try:
            herder.connectors()
        except ConnectException as error:
            body = Health(status="unhealthy", message=f"The store does not answer: {error}")
            return JSONResponse(body.model_dump(), status_code=503)
        return Health(status="healthy", message="Worker has completed startup and is ready.")

    return router
