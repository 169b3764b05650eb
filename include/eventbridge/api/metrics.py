"""Serves metrics at `GET /metrics` for Prometheus, and pushes them over OTLP while `eventbridge serve` runs."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from eventbridge.api.access import caller, check_general_scope
from eventbridge.api.call_pools import run_at_buses
from eventbridge.api.descriptions import problems
from eventbridge.api.routes import TokenFirst
from eventbridge.errors import EventBridgeError, SettingsError
from eventbridge.model.api import METRICS, ApiToken
from eventbridge.model.stat import Family
from eventbridge.runtime.runtime import Runtime
from eventbridge.telemetry.selection import is_exported
from eventbridge.views.metrics import metrics as metrics_of

if TYPE_CHECKING:
    from eventbridge.telemetry.open_telemetry import MetricsSender

log = logging.getLogger(__name__)


router = APIRouter(route_class=TokenFirst)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The metrics, from one transaction of the ledger.", "content": {"text/plain": {}}},
    **problems(
        "read",
        {
            401: "The token is missing, unknown, revoked or expired.",
            403: "The token has no scope `metrics`.",
            422: "A value is out of range.",
            503: "The ledger or the rule files fail.",
        },
    ),
}


@router.get(
    "/metrics",
    summary="Get metrics",
    operation_id="get_metrics",
    tags=["state"],
    response_class=Response,
    responses=_RESPONSES,
)
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

    body, content_type = await run_at_buses(request, render)
    return Response(body, media_type=content_type)


def exposition(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """Return metric families in the format that the scraper accepts, and its content type."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return encode(registry), content_type


class _Families(Collector):
    """Passes the families to the Prometheus client library."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield each family as the library's type."""
        return map(_metric, self._families)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, because no other collector is in the registry."""
        return iter(())


def _metric(family: Family) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for sample in family.samples:
            buckets = [("+Inf" if math.isinf(bound) else str(bound), float(count)) for bound, count in sample.buckets]
            histogram.add_metric(sample.labels, buckets, sample.value)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for sample in family.samples:
        metric.add_metric(sample.labels, sample.value)
    return metric


_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"


@contextmanager
def push_metrics(runtime: Runtime) -> Iterator[None]:
    """Send metrics every OTEL_METRIC_EXPORT_INTERVAL during the block, and once more at its end.

    Raises SettingsError for an invalid interval, and ModuleNotFoundError if the `otel` extra is missing.
    """
    if not is_exported("metrics", os.environ):
        yield
        return
    seconds = _interval_seconds()
    from eventbridge.telemetry.open_telemetry import MetricsSender

    stop = threading.Event()
    thread = threading.Thread(
        target=_send, args=(runtime, MetricsSender(), seconds, stop), name="otlp metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(seconds)


def _send(runtime: Runtime, sender: MetricsSender, seconds: float, stop: threading.Event) -> None:
    while True:
        stopped = stop.wait(seconds)
        try:
            if not sender.send(metrics_of(runtime)):
                log.warning("the OpenTelemetry collector did not accept the metrics")
        except EventBridgeError as error:
            log.warning("metrics were not sent: %s", error)
        if stopped:
            sender.close()
            return


def _interval_seconds() -> float:
    text = os.environ.get(_INTERVAL, "60000")
    if not text.isdecimal() or not int(text):
        raise SettingsError(f"{_INTERVAL} is {text!r}. Write a number of milliseconds, such as 60000")
    return int(text) / 1_000
