"""What goes wrong, as Kafka Connect's REST interface tells it: a code and a message."""

from __future__ import annotations

import logging
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sinksdk.errors import ConfigException, ConnectException
from sinksdk.runtime.herder import ConnectorRunsException
from sinksdk.runtime.registry import (
    ConnectorDeletedException,
    ConnectorExistsException,
    ConnectorNotFoundException,
)
from sinksdk.store import StoreUnavailable

log = logging.getLogger(__name__)

_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (ConnectorNotFoundException, 404),
    (ConnectorExistsException, 409),
    (ConnectorDeletedException, 409),
    (ConnectorRunsException, 400),
    (ConfigException, 400),
    (StoreUnavailable, 503),
    (ConnectException, 500),
)
"""Connect's codes; the first class that fits counts."""


class NotFoundException(ConnectException):
    """What a path names is not there."""


def code_of(error: Exception) -> int:
    """The code an error is answered with."""
    if isinstance(error, NotFoundException):
        return 404
    return next((code for kind, code in _CODES if isinstance(error, kind)), 500)


def answer(code: int, message: str) -> JSONResponse:
    """Connect's body of an error."""
    return JSONResponse({"error_code": code, "message": message}, status_code=code)


def tell_errors(app: FastAPI) -> None:
    """Answer whatever goes wrong in Connect's form."""

    @app.exception_handler(ConnectException)
    async def of_ours(_: Request, error: ConnectException) -> JSONResponse:
        return answer(code_of(error), str(error))

    @app.exception_handler(RequestValidationError)
    async def of_a_body(_: Request, error: RequestValidationError) -> JSONResponse:
        problems = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
        )
        return answer(400, problems)

    @app.exception_handler(HTTPException)
    async def of_http(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(
            {"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"},
            status_code=error.status_code,
            headers=error.headers,
        )

    @app.exception_handler(Exception)
    async def of_anything(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(500, f"{type(error).__name__}: {error}")
