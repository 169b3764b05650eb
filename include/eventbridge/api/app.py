"""Creates the API's application: its routes, its error handlers, and the resources that it holds open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, Literal

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse

from eventbridge.api import documents, handshake, hooks, lists, metrics, operations, overrides, publish, queues, replays
from eventbridge.api.access import Access
from eventbridge.api.buses import Buses
from eventbridge.api.call_pools import CallPools
from eventbridge.api.descriptions import DescribedApi
from eventbridge.api.host_paths import HostPaths
from eventbridge.api.idempotency import Idempotency
from eventbridge.api.middleware import BodyLimit, CheckedHeads, HeadAsGet, SafeHeaders
from eventbridge.api.page import audit_log, backtests, batches, buses, calls, pages, portal, redrives
from eventbridge.api.page import events as page_events
from eventbridge.api.page import operations as page_operations
from eventbridge.api.page import replays as page_replays
from eventbridge.api.page.render import login_response, refusal_response
from eventbridge.api.page.session import Gate, NotLoggedIn, TokenGate
from eventbridge.api.refusal import CallRefused
from eventbridge.api.routes import TokenFirst
from eventbridge.errors import EventBridgeError
from eventbridge.runtime.runtime import Runtime
from eventbridge.version import __version__

log = logging.getLogger(__name__)

#: The routers of all pages except the login.
PAGE_ROUTERS: Final = tuple(
    part.router
    for part in (
        pages,
        page_events,
        audit_log,
        page_operations,
        backtests,
        batches,
        buses,
        calls,
        redrives,
        page_replays,
    )
)
#: The routers of every application; a server that mounts the application has its own login and health check.
_ROUTERS: Final = (
    *(part.router for part in (metrics, lists, documents, operations, overrides, replays)),
    *PAGE_ROUTERS,
)

_own_router = APIRouter()


def create_app(runtime: Runtime) -> FastAPI:
    """Return the application that serves an installation; the caller closes `runtime` after the server has ended."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.runtime = runtime
        # Readers and operators have separate connections, because a connection runs one statement at a time and may
        # wait for the ledger's lock.
        app.state.reader, app.state.operator = reader, operator = runtime.apart(), runtime.apart()
        app.state.access = Access(reader)
        app.state.gate = TokenGate()
        app.state.idempotency = Idempotency(runtime)
        app.state.buses = buses = Buses(runtime)
        app.state.consumers, app.state.waiting_consumers = consumers, _ = runtime.apart(), 0
        for name in ("runtime", "reader", "operator", "access", "pools"):
            setattr(for_partners.state, name, getattr(app.state, name))
        yield
        app.state.pools.close()
        await buses.close()
        reader.ledger.close()
        operator.ledger.close()
        consumers.ledger.close()

    app = _application(lifespan)
    own = (publish.router, hooks.router, handshake.router, queues.router, _own_router)
    for router in (*own, *_ROUTERS, pages.own_login):
        app.include_router(router)
    for_partners = portal.add_portal(app, _bare_application(lifespan=None), PAGE_ROUTERS)
    return app


def create_mounted_app(open_runtime: Callable[[], Runtime], gate: Gate) -> FastAPI:
    """Return the part of the API that another web server mounts; its first call opens the installation.

    `gate` decides who may see the page. The runtime that `open_runtime` returns is closed when the server stops.
    """
    opening = asyncio.Lock()

    async def open_once(request: Request) -> None:
        """Open the installation once; if that fails, the next call tries again."""
        app: FastAPI = request.app
        async with opening:
            if getattr(app.state, "runtime", None) is None:
                runtime = await asyncio.to_thread(open_runtime)
                # A connection runs one statement at a time, so readers have their own and do not wait for operators.
                app.state.reader = reader = await asyncio.to_thread(runtime.apart)
                app.state.access = Access(reader)
                app.state.idempotency = Idempotency(runtime)
                app.state.runtime = app.state.operator = runtime

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.pools.close()
        if (runtime := getattr(app.state, "runtime", None)) is not None:
            app.state.reader.ledger.close()
            runtime.close()

    app = _application(lifespan, Depends(open_once))
    app.state.gate = gate
    app.state.opened = open_once
    app.state.framed = True
    for router in _ROUTERS:
        app.include_router(router)
    return app


def _application(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]], *dependencies: Any) -> FastAPI:
    """Return an application without routes, with the middleware and the error handlers."""
    app = _bare_application(lifespan, *dependencies)
    app.state.pools = CallPools()
    app.add_middleware(HostPaths)
    app.add_middleware(BodyLimit)
    app.add_middleware(HeadAsGet)
    app.add_middleware(CheckedHeads)
    app.add_middleware(SafeHeaders)
    return app


def _bare_application(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None, *dependencies: Any
) -> FastAPI:
    """Return an application without routes and middleware, with the error handlers."""
    app = DescribedApi(
        title="EventBridge for Airflow and Spark",
        version=__version__,
        description="Publishes events to the event buses of an installation, and reports and controls their delivery.",
        lifespan=lifespan,
        dependencies=dependencies,
        docs_url=None,  # its page would load scripts from other hosts
        redoc_url=None,
        openapi_url=None,  # `description` serves it to callers with a token
        redirect_slashes=False,  # behind a proxy that terminates TLS, a redirect would name http://
    )
    for kind in (CallRefused, ClientDisconnect, EventBridgeError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, refusal_response)
    app.add_exception_handler(NotLoggedIn, login_response)
    return app


_State = Literal["ok", "failing"]


class Health(BaseModel):
    """The state of everything that the API needs, `ok` or `failing`; the server's log has the reason."""

    status: _State
    ledger: _State
    rules: _State = Field(description="`failing` if the rule files were never valid.")


@_own_router.get(
    "/health",
    summary="Get the health of the server",
    operation_id="get_health",
    tags=["state"],
    responses={503: {"model": Health}},
)
async def health(request: Request, response: Response) -> Health:
    """Check the ledger and the rules. The call needs no token, and returns 503 if either check fails."""
    runtime: Runtime = request.app.state.runtime
    buses: Buses = request.app.state.buses
    ledger = await _check("ledger", asyncio.to_thread(lambda: runtime.ledger.id))
    rules = await _check("rules", buses.rules())
    status: _State = "ok" if ledger == rules == "ok" else "failing"
    if status != "ok":
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return Health(status=status, ledger=ledger, rules=rules)


async def _check(name: str, asked: Awaitable[object]) -> _State:
    try:
        await asked
    except EventBridgeError as error:
        log.error("health: %s: %s", name, error)
        return "failing"
    return "ok"


async def description(request: Request) -> dict[str, Any]:
    """Return the OpenAPI description; needs a valid token, because it lists all calls that an attacker could try."""
    found: dict[str, Any] = request.app.openapi()
    return found


@_own_router.get("/", include_in_schema=False)
def home() -> RedirectResponse:
    """Redirect a browser to the page; the path is relative, for servers behind a prefix."""
    return RedirectResponse("page", HTTPStatus.SEE_OTHER)


_own_router.add_api_route("/openapi.json", description, include_in_schema=False, route_class_override=TokenFirst)
