"""The part of the API that another web server mounts; the first call opens the installation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from eventbridge.api import documents, lists, metrics, operations, replays, rules_and_targets, whole_lists
from eventbridge.api.access import Access
from eventbridge.api.body_limit import BodyLimit
from eventbridge.api.costly_calls import CostlyCalls
from eventbridge.api.head_as_get import HeadAsGet
from eventbridge.api.idempotency import Idempotency
from eventbridge.api.page.render import login_response, refusal_response
from eventbridge.api.page.routers import ROUTERS
from eventbridge.api.page.session import Gate, NotLoggedIn
from eventbridge.api.refusal import CallRefused
from eventbridge.api.safe_headers import SafeHeaders
from eventbridge.errors import EventBridgeError
from eventbridge.runtime.runtime import Runtime
from eventbridge.version import __version__


def create_mounted_app(open_work: Callable[[], Runtime], gate: Gate) -> FastAPI:
    """Return the application; `gate` decides who may see the page.

    The runtime that `open_work` returns is closed when the server stops.
    """
    opening = asyncio.Lock()

    async def opened(request: Request) -> None:
        """Open the installation once; if that fails, the next call tries again."""
        app: FastAPI = request.app
        async with opening:
            if getattr(app.state, "runtime", None) is None:
                runtime = await asyncio.to_thread(open_work)
                # Readers do not wait for operators: a ledger's connection runs one statement at a time.
                app.state.reader = reader = await asyncio.to_thread(runtime.apart)
                app.state.access = Access(reader)
                app.state.idempotency = Idempotency(runtime)
                app.state.runtime = app.state.operator = runtime

    @asynccontextmanager
    async def closed(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.costly.close()
        if (runtime := getattr(app.state, "runtime", None)) is not None:
            app.state.reader.ledger.close()
            runtime.close()

    app = FastAPI(
        title="EventBridge for Airflow and Spark",
        version=__version__,
        lifespan=closed,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_url=None,
        dependencies=[Depends(opened)],
    )
    app.state.costly = CostlyCalls()
    app.add_middleware(BodyLimit)
    app.add_middleware(HeadAsGet)
    app.add_middleware(SafeHeaders)
    for kind in (CallRefused, EventBridgeError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, refusal_response)
    app.add_exception_handler(NotLoggedIn, login_response)
    app.state.gate = gate
    app.state.opened = opened
    app.state.framed = True
    for part in (metrics, lists, documents, whole_lists, operations, rules_and_targets, replays):
        app.include_router(part.router)
    for router in ROUTERS:
        app.include_router(router)
    return app
