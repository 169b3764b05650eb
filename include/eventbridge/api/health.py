"""`GET /health`: whether the API can serve calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from eventbridge.api.buses import Buses
from eventbridge.errors import EventBridgeError
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)
router = APIRouter()

_State = Literal["ok", "failing"]


class Health(BaseModel):
    """The state of everything that the API needs, `ok` or `failing`; the log of the server has the reason."""

    status: _State
    ledger: _State
    rules: _State = Field(description="`failing` if the rule files were never valid.")


@router.get("/health", summary="Get the health of the server", responses={503: {"model": Health}})
async def health(request: Request, response: Response) -> Health:
    """Check the ledger and the rules. It needs no token, and returns 503 if one of them fails."""
    runtime: Runtime = request.app.state.runtime
    buses: Buses = request.app.state.buses
    ledger = await _check("ledger", asyncio.to_thread(lambda: runtime.ledger.ledger_id))
    rules = await _check("rules", buses.rules())
    status: _State = "ok" if ledger == rules == "ok" else "failing"
    if status != "ok":
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return Health(status=status, ledger=ledger, rules=rules)


async def _check(what: str, asked: Awaitable[object]) -> _State:
    try:
        await asked
    except EventBridgeError as error:
        log.error("health: %s: %s", what, error)
        return "failing"
    return "ok"
