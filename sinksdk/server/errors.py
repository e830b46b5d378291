"""Errors in the form of Kafka Connect's REST interface: a code and a message."""

from __future__ import annotations

import logging
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from sinksdk.control.liveness import ConnectorClosingException
from sinksdk.control.offsets import ConnectorRunsException, OffsetsRefusedException
from sinksdk.control.registry import (
    ConnectorDeletedException,
    ConnectorExistsException,
    ConnectorNotFoundException,
    WrongKindException,
)
from sinksdk.errors import ConfigException, ConnectException, FencedException
from sinksdk.server.bodies import Error
from sinksdk.store import StoreUnavailable
from sinksdk.store.generations import UnpublishedException
from sinksdk.support.confidential import SECRETS

log = logging.getLogger(__name__)


class NotFoundException(ConnectException):
    """What a path names is not there."""


_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (NotFoundException, 404),
    (ConnectorNotFoundException, 404),
    (ConnectorExistsException, 409),
    (ConnectorDeletedException, 409),
    (WrongKindException, 409),
    (UnpublishedException, 409),
    (FencedException, 409),
    (ConnectorClosingException, 409),
    (ConnectorRunsException, 400),
    (OffsetsRefusedException, 400),
    (ConfigException, 400),
    (StoreUnavailable, 503),
    (ConnectException, 500),
)
"""Connect's codes; the first class that fits counts."""

_MEANINGS: Final = {
    400: "The request says nothing that can be done: every problem at once.",
    401: "Credentials are needed.",
    403: "The request comes from another site's page, names a host that this server is not, or needs another "
    "role than its client has.",
    404: "There is no such connector, task, plugin or logger.",
    409: (
        "The name is taken or of another kind, the connector is being deleted, or somebody else is just "
        "changing it."
    ),
    413: "The body is larger than 8 MiB.",
    415: "The body is not JSON by its Content-Type.",
    500: "The server or its store has failed.",
    503: "The store does not answer.",
}
_ALWAYS: Final = (401, 403, 500, 503)
_METHOD_NOT_ALLOWED: Final = 405


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """What a path may answer besides its success and what every path may, for the interface's description."""
    with_body = (413,) if 415 in codes else ()  # noqa: PLR2004 - what has a body may have too much of it
    return {
        code: {"model": Error, "description": _MEANINGS[code]}
        for code in sorted({*codes, *with_body, *_ALWAYS})
    }


def answer(code: int, message: str) -> JSONResponse:
    """Connect's body of an error; secrets that the message quotes are left out."""
    body = Error(error_code=code, message=SECRETS.hide(message))
    return JSONResponse(body.model_dump(), status_code=code)


def answer_errors(app: FastAPI) -> None:
    """Answer whatever goes wrong in Connect's form."""

    @app.exception_handler(ConnectException)
    async def of_ours(_: Request, error: ConnectException) -> JSONResponse:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        return answer(code, str(error))

    @app.exception_handler(RequestValidationError)
    async def of_a_body(_: Request, error: RequestValidationError) -> JSONResponse:
        problems = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
        )
        return answer(400, problems)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        response = answer(error.status_code, f"HTTP {error.status_code} {error.detail}")
        response.headers.update(error.headers or {})
        if error.status_code == _METHOD_NOT_ALLOWED:
            response.headers["Allow"] = ", ".join(sorted(_methods(request)))
        return response

    @app.exception_handler(Exception)
    async def of_anything(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(500, f"{type(error).__name__}: {error}")


def _methods(request: Request) -> set[str]:
    """The allowed methods of a path; each has its own route, of which Starlette names only the first."""
    described = request.app.openapi()["paths"].items()
    here = [methods for path, methods in described if compile_path(path)[0].match(request.scope["path"])]
    found = {method.upper() for methods in here for method in methods}
    return found | {"HEAD"} if "GET" in found else found
