"""The server's application: Kafka Connect's REST interface on one store."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI

from sinksdk.runtime.herder import Herder
from sinksdk.server import connectors, metrics, progress
from sinksdk.server.admin import admin_router
from sinksdk.server.auth import Authentication, Credentials
from sinksdk.server.cross_site import CrossSiteProtection
from sinksdk.server.errors import tell_errors
from sinksdk.server.page import page_router
from sinksdk.server.plugins import plugins_router
from sinksdk.store import Store, identify


def create_app(store: Store, credentials: Credentials | None = None) -> FastAPI:
    """An application that handles the connectors of a store; it runs none of them.

    Args:
        store: opened.
        credentials: who is let in; None: everybody who reaches it.
    """
    herder, own = Herder(store), version("sinksdk")
    app = FastAPI(title="sinksdk", version=own, docs_url="/docs", redoc_url=None)
    app.include_router(admin_router(herder, own, identify(store)))
    app.state.herder = herder
    app.include_router(connectors.router)
    app.include_router(metrics.router)
    app.include_router(plugins_router(own))
    app.include_router(progress.router)
    app.include_router(page_router())
    tell_errors(app)
    app.add_middleware(CrossSiteProtection)
    if credentials is not None:
        app.add_middleware(Authentication, credentials=credentials)
    return app
