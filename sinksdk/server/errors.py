"""Error responses in Kafka Connect's form: a code and a message."""

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


class NotFoundException(ConnectException): ...


# Kafka Connect's codes; the first matching class counts.
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

_MEANINGS: Final = {
    400: "The request is invalid; the message lists every problem.",
    401: "Authentication is required.",
    403: "The request comes from another site's page, has a Host that "
    "is not accepted, or needs a role that the client does not have.",
    404: "The connector, task, plugin or logger does not exist.",
    409: (
        "A connector with this name already exists, possibly of another kind, or it is being deleted or "
        "changed by another request."
    ),
    413: "The body is larger than 8 MiB.",
    415: "The Content-Type is not JSON.",
    500: "The server or its store failed.",
    503: "The store does not respond.",
}
_ALWAYS: Final = (401, 403, 500, 503)
_METHOD_NOT_ALLOWED: Final = 405


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    with_body = (413,) if 415 in codes else ()  # noqa: PLR2004 - paths with a body
    return {
        code: {"model": Error, "description": _MEANINGS[code]}
        for code in sorted({*codes, *with_body, *_ALWAYS})
    }


def error_response(code: int, message: str) -> JSONResponse:
    body = Error(error_code=code, message=SECRETS.hide(message))
    return JSONResponse(body.model_dump(), status_code=code)


def add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(ConnectException)
    async def of_ours(_: Request, error: ConnectException) -> JSONResponse:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        return error_response(code, str(error))

    @app.exception_handler(RequestValidationError)
    async def of_a_body(_: Request, error: RequestValidationError) -> JSONResponse:
        problems = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
        )
        return error_response(400, problems)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        response = error_response(error.status_code, f"HTTP {error.status_code} {error.detail}")
        response.headers.update(error.headers or {})
        if error.status_code == _METHOD_NOT_ALLOWED:
            response.headers["Allow"] = ", ".join(sorted(_methods(request)))
        return response

    @app.exception_handler(Exception)
    async def of_anything(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return error_response(500, f"{type(error).__name__}: {error}")


def _methods(request: Request) -> set[str]:
    # Each method has its own route, and Starlette itself would return only the methods of the first route.
    described = request.app.openapi()["paths"].items()
    here = [methods for path, methods in described if compile_path(path)[0].match(request.scope["path"])]
    found = {method.upper() for methods in here for method in methods}
    return found | {"HEAD"} if "GET" in found else found
