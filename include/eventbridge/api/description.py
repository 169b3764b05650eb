"""`GET /openapi.json`: what the API takes and returns, for those who may call it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from eventbridge.api.token_first import TokenFirst

router = APIRouter(route_class=TokenFirst)


@router.get("/openapi.json", include_in_schema=False)
async def description(request: Request) -> dict[str, Any]:
    """Return the description of all calls, to any valid token: it lists what an attacker would try."""
    found: dict[str, Any] = request.app.openapi()
    return found
