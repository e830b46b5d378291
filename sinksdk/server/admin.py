"""What the server says of itself: version, health, log levels."""

from __future__ import annotations

import logging
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from sinksdk.errors import ConfigException, ConnectException
from sinksdk.runtime.herder import Herder
from sinksdk.server.bodies import Health, ServerInfo
from sinksdk.server.errors import NotFoundException

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


class Level(BaseModel):
    """``PUT /admin/loggers/{name}``."""

    level: str


def admin_router(herder: Herder, version: str, store_id: str) -> APIRouter:
    """The server's own paths.

    Args:
        herder: of the store.
        version: of sinksdk.
        store_id: stands where Connect has its cluster's id.
    """
    router = APIRouter(tags=["server"])

    @router.get("/")
    def server() -> ServerInfo:
        """Version and store."""
        return ServerInfo(version=version, commit="", kafka_cluster_id=store_id)

    @router.get("/health", response_model=Health)
    def health() -> Any:
        """Whether the store answers (KIP-1017)."""
        try:
            herder.connectors()
        except ConnectException as error:
            body = Health(status="unhealthy", message=f"The store does not answer: {error}")
            return JSONResponse(body.model_dump(), status_code=503)
        return Health(status="healthy", message="Worker has completed startup and is ready.")

    @router.get("/admin/loggers")
    def loggers() -> dict[str, dict[str, str | None]]:
        """Loggers of sinksdk with a level of their own."""
        names = sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == "sinksdk")
        return {name: _level(name) for name in names if logging.getLogger(name).level}

    @router.get("/admin/loggers/{name}")
    def logger(name: str) -> dict[str, str | None]:
        """A logger's level."""
        if name not in logging.root.manager.loggerDict:
            raise NotFoundException(f"Logger {name} not found.")
        return _level(name)

    @router.put("/admin/loggers/{name}")
    def set_level(name: str, wanted: Level) -> list[str]:
        """Change the level of a logger; names of those that are changed."""
        if wanted.level.upper() not in _LEVELS:
            raise NotFoundException(f"invalid log level '{wanted.level}'; there are {', '.join(_LEVELS)}")
        if name.split(".", maxsplit=1)[0] not in ("sinksdk", "connectors"):
            raise ConfigException(f"logger '{name}' is none of sinksdk's")
        logging.getLogger(name).setLevel(_LEVELS[wanted.level.upper()])
        return [name]

    return router


def _level(name: str) -> dict[str, str | None]:
    level = logging.getLogger(name).getEffectiveLevel()
    return {"level": next((word for word, number in _LEVELS.items() if number == level), "INFO")}
