"""Serves the page of buses: the lag and the flow of each runner, and when its lag will be zero."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from eventbridge.api.call_pools import asks_buses
from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.overview import runner_lags
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.status import status

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

#: The maximum numbers of runners and of partitions on the page; those with the largest lag are shown.
_MAX_RUNNERS, _MAX_PARTITIONS = 100, 50
#: The longest forecast that is shown as a date; rates of five minutes say nothing about later ones.
_MAX_FORECAST = timedelta(days=365)


@router.get("/buses")
@asks_buses
def buses(request: Request, found: Annotated[Viewer, Depends(viewer)]) -> Response:
    """Return the lag of each runner, the largest first, with its flow and a forecast, and of partitions."""

    def load(runtime: Runtime) -> dict[str, Any]:
        current = status(runtime, batches=0)
        lags = sorted(runner_lags(current), key=lambda each: -1 if each.lag is None else each.lag, reverse=True)
        now = runtime.clock()
        times = {
            (each.runner, each.bus): now + timedelta(seconds=each.drains_in)
            for each in lags
            if each.drains_in and each.drains_in < _MAX_FORECAST.total_seconds()
        }
        flows = {(each.runner, each.bus, each.partition): each for each in current.flows}
        partitions = sorted(current.partitions, key=lambda each: each.lag or 0, reverse=True)
        shown = [(each, flows.get((each.runner, each.bus, each.partition))) for each in partitions[:_MAX_PARTITIONS]]
        return {
            "lags": lags[:_MAX_RUNNERS],
            "more": len(lags) - len(lags[:_MAX_RUNNERS]),
            "times": times,
            "partitions": shown,
            "count": len(partitions),
            "modes": {each.runner for each in current.streaming},
            "unregistered": current.unregistered,
        }

    return render(request, "buses", {"viewer": found} | run_for_caller(request, load))
