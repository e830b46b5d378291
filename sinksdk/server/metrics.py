"""``/metrics``: what Prometheus asks for."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Response

from sinksdk.metrics.prometheus import exposition
from sinksdk.runtime.herder import Herder
from sinksdk.server.errors import errors
from sinksdk.server.state import the_herder

router = APIRouter(tags=["server"])


_TEXT: dict[str, Any] = {"content": {"text/plain": {}, "application/openmetrics-text": {}}}


@router.get("/metrics", response_class=Response, responses={**errors(), 200: _TEXT})
def metrics(
    herder: Annotated[Herder, Depends(the_herder)], accept: Annotated[str, Header()] = ""
) -> Response:
    """Metrics of all connectors, in Prometheus's text format or OpenMetrics."""
    body, content_type = exposition(herder, accept)
    return Response(body, headers={"Content-Type": content_type})
