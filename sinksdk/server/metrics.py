"""``/metrics``: what Prometheus asks for."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Response
from prometheus_client.exposition import choose_encoder

from sinksdk.control.herder import Herder
from sinksdk.metrics.prometheus import exposition
from sinksdk.server.admin import StoreHealth
from sinksdk.server.errors import errors
from sinksdk.server.latest import Answer, Latest
from sinksdk.spark.places import LookAtPlaces
from sinksdk.store import StoreUnavailable

_TEXT: dict[str, Any] = {"content": {"text/plain": {}, "application/openmetrics-text": {}}}
_OLDEST: Final = 90.0  # seconds: Prometheus asks each minute, or more often


def metrics_router(herder: Herder, health: StoreHealth, places: LookAtPlaces) -> APIRouter:
    """The path of metrics.

    Args:
        herder: of the store.
        health: whether that answers.
        places: looks at Spark's places.
    """
    router = APIRouter(tags=["server"])
    latest: dict[str, Latest[tuple[bytes, str]]] = {}  # by format: there are a few

    @router.get("/metrics", response_class=Response, responses={**errors(), 200: _TEXT})
    async def metrics(accept: Annotated[str, Header()] = "") -> Response:
        """Metrics of all connectors, in Prometheus's text format or OpenMetrics, within 2 s.

        Where there are too many for that, each scrape gets what the one before has asked for. While the
        store does not answer there are no numbers.
        """
        ask = latest.setdefault(
            choose_encoder(accept)[1], Latest(lambda: exposition(herder, accept, places()))
        )
        before = ask.last
        now, problem = await asyncio.gather(ask.get(), health.problem())
        if now is None and problem is None and before is not None and ask.asked_at - before.at < _OLDEST:
            now = before
        return _response(now, problem)

    return router


def _response(found: Answer[tuple[bytes, str]] | None, problem: str | None) -> Response:
    if found is None:
        raise StoreUnavailable(
            problem or "the metrics of so many connectors are not collected yet; ask again"
        )
    if found.error is not None:
        raise found.error
    assert found.value is not None  # noqa: S101 - there is no error
    body, content_type = found.value
    return Response(body, headers={"Content-Type": content_type})
