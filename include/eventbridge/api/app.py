"""The API's application: its routes, its error handlers, and the resources that it holds open while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from eventbridge.api import (
    description,
    documents,
    health,
    hooks,
    lists,
    metrics,
    operations,
    publish,
    replays,
    rules_and_targets,
    whole_lists,
)
from eventbridge.api.access import Access
from eventbridge.api.body_limit import BodyLimit
from eventbridge.api.buses import Buses
from eventbridge.api.costly_calls import CostlyCalls
from eventbridge.api.head_as_get import HeadAsGet
from eventbridge.api.idempotency import Idempotency
from eventbridge.api.page import page
from eventbridge.api.page.render import login_response, refusal_response
from eventbridge.api.page.routers import ROUTERS
from eventbridge.api.page.session import NotLoggedIn, TokenGate
from eventbridge.api.refusal import CallRefused
from eventbridge.api.safe_headers import SafeHeaders
from eventbridge.errors import EventBridgeError
from eventbridge.runtime.runtime import Runtime
from eventbridge.version import __version__


def create_app(runtime: Runtime) -> FastAPI:
    """Return the application that serves an installation; the caller closes `runtime` after the server ended."""

    @asynccontextmanager
    async def opened(app: FastAPI) -> AsyncIterator[None]:
        app.state.runtime = runtime
        # Readers and operators have connections of their own: one connection runs one statement at a time, and may wait
        # for the ledger's lock.
        app.state.reader, app.state.operator = reader, operator = runtime.apart(), runtime.apart()
        app.state.access = Access(reader)
        app.state.gate = TokenGate()
        app.state.idempotency = Idempotency(runtime)
        app.state.buses = buses = Buses(runtime)
        yield
        app.state.costly.close()
        await buses.close()
        reader.ledger.close()
        operator.ledger.close()

    app = FastAPI(
        title="EventBridge for Airflow and Spark",
        version=__version__,
        description="Publishes events to the event buses of an installation, and reports and controls their delivery.",
        lifespan=opened,
        docs_url=None,  # its page would load scripts from other hosts
        redoc_url=None,
        openapi_url=None,  # `description` serves it to callers with a token
        redirect_slashes=False,  # behind a proxy that terminates TLS, a redirect would name http://
    )
    app.state.costly = CostlyCalls()
    app.add_middleware(BodyLimit)
    app.add_middleware(HeadAsGet)
    app.add_middleware(SafeHeaders)
    for kind in (CallRefused, EventBridgeError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, refusal_response)
    app.add_exception_handler(NotLoggedIn, login_response)
    app.include_router(publish.router)
    app.include_router(hooks.router)
    app.include_router(health.router)
    app.include_router(metrics.router)
    app.include_router(lists.router)
    app.include_router(documents.router)
    for part in (description, whole_lists, operations, rules_and_targets, replays):
        app.include_router(part.router)
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(page.own_login)
    return app
