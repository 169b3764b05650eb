"""`GET /openapi.json`: the OpenAPI description of the API, for callers with a token."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from eventbridge.api.token_first import TokenFirst

router = APIRouter(route_class=TokenFirst)


@router.get("/openapi.json", include_in_schema=False)
async def description(request: Request) -> dict[str, Any]:
    """Return the OpenAPI description; it needs a valid token, because it lists all that an attacker could try."""
    found: dict[str, Any] = request.app.openapi()
    return found
