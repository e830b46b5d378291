"""The server's application: Kafka Connect's REST interface on one store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from sinksdk.control.herder import Herder
from sinksdk.control.sink_offsets import Sinks, opened_sink
from sinksdk.control.source_offsets import OpenedTarget, SourceOffsets, Targets
from sinksdk.errors import ConfigException
from sinksdk.server import connectors, loggers, progress
from sinksdk.server.admin import StoreHealth, admin_router
from sinksdk.server.auth import Authentication, Credentials
from sinksdk.server.errors import tell_errors
from sinksdk.server.guard import Guard
from sinksdk.server.heads import Heads
from sinksdk.server.metrics import metrics_router
from sinksdk.server.page import page_router
from sinksdk.server.paths import PathSegments
from sinksdk.server.plugins import plugins_router
from sinksdk.settings.references import ConfigProviders
from sinksdk.spark.places import LookAtPlaces
from sinksdk.store import Store, identify


def create_app(
    store: Store,
    credentials: Credentials | None = None,
    *,
    hosts: Collection[str] | None = None,
    providers: ConfigProviders | None = None,
    targets: Targets | None = None,
    sinks: Sinks | None = None,
    places: LookAtPlaces = lambda: None,
) -> FastAPI:
    """An application that handles the connectors of a store; it runs none of them.

    Args:
        store: opened.
        credentials: who is let in; None: everybody who reaches it.
        hosts: as :class:`~sinksdk.server.guard.Guard` takes them.
        providers: what configurations may refer to; nothing by default.
        targets: opens where a source writes; by default it is not known, and neither are its offsets.
        sinks: opens a sink whose offsets are altered; by default it is not known what its source has.
        places: looks at the places of this process's Spark, if it runs one.
    """
    providers = providers or ConfigProviders()
    herder = Herder(store, sinks=sinks or partial(opened_sink, providers=providers))
    own = version("sinksdk")
    # No page of documentation: FastAPI's loads scripts from elsewhere, which could control connectors.
    app = _Described(title="sinksdk", version=own, docs_url=None, redoc_url=None, redirect_slashes=False)
    health = StoreHealth(herder)
    app.include_router(admin_router(health, own, identify(store)))
    app.state.herder, app.state.providers = herder, providers
    app.state.source_offsets = SourceOffsets(store, targets or _unknown)
    app.include_router(loggers.router)
    app.include_router(connectors.router)
    app.include_router(metrics_router(herder, health, places))
    app.include_router(plugins_router(own))
    app.include_router(progress.router)
    app.include_router(page_router())
    protect(app, credentials, hosts)
    return app


def protect(app: FastAPI, credentials: Credentials | None, hosts: Collection[str] | None) -> None:
    """Put around an application what each of the server has: who may ask, from where, how errors are told."""
    tell_errors(app)
    app.add_middleware(PathSegments)
    app.add_middleware(Heads)
    if credentials is not None:
        app.add_middleware(Authentication, credentials=credentials)
    app.add_middleware(Guard, hosts=hosts)


def _unknown(config: Mapping[str, str]) -> OpenedTarget:
    raise ConfigException(
        f"connector '{config.get('name')}' is a source, and where it writes is not known to this server: ask "
        f"the one that was started with --topic-directory or --bootstrap-servers"
    )


class _Described(FastAPI):
    """Its description says what is answered to a bad request: Connect's 400, not FastAPI's 422."""

    def openapi(self) -> dict[str, Any]:
        """See the class."""
        if self.openapi_schema is None:
            described = super().openapi()
            for path in described["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for unused in ("HTTPValidationError", "ValidationError"):
                described["components"]["schemas"].pop(unused, None)
        return super().openapi()
