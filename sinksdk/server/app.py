"""The ASGI application: Kafka Connect's REST interface on one store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OpenedTarget, Sinks, SourceOffsets, Targets, opened_sink
from sinksdk.errors import ConfigException
from sinksdk.server import connectors, progress
from sinksdk.server.admin import (
    StoreHealth,
    admin_router,
    loggers_router,
    metrics_router,
    page_router,
    waiting_router,
)
from sinksdk.server.credentials import Credentials
from sinksdk.server.middleware import protect
from sinksdk.server.plugins import plugins_router
from sinksdk.settings.references import ConfigProviders
from sinksdk.spark.task_slots import ReadTaskSlots
from sinksdk.store import Store, identify


def create_app(
    store: Store,
    credentials: Credentials | None = None,
    *,
    hosts: Collection[str] | None = None,
    providers: ConfigProviders | None = None,
    targets: Targets | None = None,
    sinks: Sinks | None = None,
    task_slots: ReadTaskSlots = lambda: None,
) -> FastAPI:
    providers = providers or ConfigProviders()
    herder = Herder(store, sinks=sinks or partial(opened_sink, providers=providers))
    own = version("sinksdk")
    # FastAPI's documentation page is off, because it loads scripts of other sites, which could control
    # connectors.
    app = _Application(title="sinksdk", version=own, docs_url=None, redoc_url=None, redirect_slashes=False)
    health = StoreHealth(herder)
    app.include_router(admin_router(health, own, identify(store)))
    app.state.herder, app.state.providers = herder, providers
    # Offsets of sources are unavailable without `targets`.
    app.state.source_offsets = SourceOffsets(store, targets or _refuse_target)
    app.include_router(loggers_router)
    app.include_router(connectors.router)
    app.include_router(metrics_router(herder, health, task_slots))
    app.include_router(plugins_router(own))
    app.include_router(progress.router)
    app.include_router(page_router())
    protect(app, credentials, hosts)
    return app


def create_waiting_app(
    why: Callable[[], str], credentials: Credentials | None = None, *, hosts: Collection[str] | None = None
) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(page_router())
    app.include_router(waiting_router(why))
    protect(app, credentials, hosts)
    return app


def _refuse_target(config: Mapping[str, str]) -> OpenedTarget:
    raise ConfigException(
        f"connector '{config.get('name')}' is a source, and this server has no access to its topics: send "
        f"the request to a server that was started with --topic-directory or --bootstrap-servers"
    )


class _Application(FastAPI):
    # Kafka Connect responds to invalid requests with 400, FastAPI with 422.
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            described = super().openapi()
            for path in described["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for unused in ("HTTPValidationError", "ValidationError"):
                described["components"]["schemas"].pop(unused, None)
        return super().openapi()
