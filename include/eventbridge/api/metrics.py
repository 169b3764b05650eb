"""`GET /metrics`: the metrics of an installation, for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from eventbridge.api.access import caller, check_general_scope
from eventbridge.api.exposition import exposition
from eventbridge.api.refusal import PROBLEM
from eventbridge.api.token_first import TokenFirst
from eventbridge.model.api import METRICS, ApiToken
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.metrics import metrics as metrics_of

router = APIRouter(route_class=TokenFirst)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The metrics, from one transaction of the ledger.", "content": {"text/plain": {}}},
    401: {"description": "The token is missing, unknown, revoked or expired.", **PROBLEM},
    403: {"description": "The token has no scope `metrics`.", **PROBLEM},
    422: {"description": "A value is out of range.", **PROBLEM},
    503: {"description": "The ledger or the rule files fail.", **PROBLEM},
}


@router.get("/metrics", summary="Get metrics", response_class=Response, responses=_RESPONSES)
async def metrics(
    request: Request,
    token: Annotated[ApiToken, Depends(caller)],
    targets: Annotated[bool, Query(description="Include counters for each target of each rule.")] = False,
    accept: Annotated[str, Header()] = "",
) -> Response:
    """Return the metrics in the text format of Prometheus, or in OpenMetrics if the caller accepts it."""
    check_general_scope(token, METRICS)
    runtime: Runtime = request.app.state.reader

    def render() -> tuple[bytes, str]:
        return exposition(metrics_of(runtime, of_targets=targets), accept)

    body, content_type = await asyncio.to_thread(render)
    return Response(body, media_type=content_type)
