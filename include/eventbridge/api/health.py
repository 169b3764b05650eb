"""`GET /health`: whether the API can serve calls now."""

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
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)
router = APIRouter()

_Word = Literal["ok", "failing"]


class Health(BaseModel):
    """What the API needs, each `ok` or `failing`; the log of the server says why."""

    status: _Word
    ledger: _Word
    rules: _Word = Field(description="`failing` if the rule files never were good.")


@router.get("/health", summary="Tell whether calls can be served", responses={503: {"model": Health}})
async def health(request: Request, response: Response) -> Health:
    """Look at the ledger and the rules; needs no token. 503 if one of them fails."""
    runtime: Runtime = request.app.state.runtime
    buses: Buses = request.app.state.buses
    ledger = await _look("ledger", asyncio.to_thread(lambda: runtime.ledger.ledger_id))
    rules = await _look("rules", buses.rules())
    status: _Word = "ok" if ledger == rules == "ok" else "failing"
    if status != "ok":
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return Health(status=status, ledger=ledger, rules=rules)


async def _look(what: str, asked: Awaitable[object]) -> _Word:
    try:
        await asked
    except EventBridgeError as error:
        log.error("health: %s: %s", what, error)
        return "failing"
    return "ok"
