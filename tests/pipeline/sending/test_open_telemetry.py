"""An OpenTelemetry collector receives batches and their deliveries; without one, no object is created."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from demo.receiver import Receiver
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pipeline.delivering import RunningClock, Sending, http

from eventbridge.errors import SettingsError
from eventbridge.telemetry.open_telemetry import MetricsSender, trace_of
from eventbridge.telemetry.protocol import NO_TELEMETRY, Telemetry
from eventbridge.telemetry.selection import is_exported, telemetry_from_environment
from eventbridge.views.metrics import metrics

TRACE = "0af7651916cd43dd8448eb211c80319c"
BROUGHT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver that records headers, too."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "requests.jsonl", whole=True) as running:
        yield running


class Collector:
    """Takes what is sent by OTLP over HTTP, on a free port."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self) -> list[Span]:
        """Return the spans that came, in their order."""
        found = (ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces")
        return [
            span
            for request in found
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that runs."""
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def telemetry(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    """What a process has whose environment names the collector, and samples events that are in no trace never."""
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return telemetry_from_environment(environ)


def test_an_event_is_one_trace_from_published_to_delivered(
    sending: Sending, collector: Collector, telemetry: Telemetry, clock: RunningClock
) -> None:
    """Over two retries and two targets, in the trace that it brought, which its targets receive."""
    sending.begin(sending.order(1, traceparent=BROUGHT), sending.order(2), crm="/healthy/crm", late=http("/flaky/late"))
    traced = replace(sending.runtime, telemetry=telemetry)
    sending.site.works[-1] = traced
    for _ in range(3):
        sending.deliver()
        clock.advance(5_000)
    telemetry.close()

    spans = collector.spans()
    of_event = [span for span in spans if span.trace_id.hex() == TRACE]
    assert sorted(span.name for span in of_event) == sorted(
        ["landed", "landed", "routed", "routed", "attempt", "attempt", "attempt", "attempt", "delivered", "delivered"]
    )
    ends = [span for span in of_event if span.name == "delivered"]
    assert {span.parent_span_id.hex() for span in ends} == {BROUGHT.split("-")[2]}
    assert {span.parent_span_id for span in of_event if span.name != "delivered"} == {span.span_id for span in ends}
    batches = {span.trace_id: span for span in spans if span.name == "batch"}
    assert all(end.links[0].trace_id in batches for end in ends)
    assert {span.trace_id.hex() for span in spans if span.name == "attempt"} == {TRACE}, "the other is not sampled"
    stages = {span.name for span in spans if span.trace_id in batches}
    assert {"listen", "buffer", "route", "push", "commit", "batch"} <= stages
    reported = [request["headers"]["traceparent"] for request in sending.requests()]
    assert reported.count(BROUGHT) == 4, "one for each attempt at its deliveries"


def test_metrics_are_sent_as_they_are_scraped(sending: Sending, collector: Collector, telemetry: Telemetry) -> None:
    """Sums since ever, gauges, and the histogram with its buckets."""
    sending.begin(5, crm="/healthy/crm")
    sending.deliver()

    sender = MetricsSender()
    assert sender.send(metrics(sending.runtime))
    sender.close()

    ((_, body),) = [each for each in collector.bodies if each[0] == "/v1/metrics"]
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    delivered = {
        point.attributes[1].value.string_value: point.as_double or point.as_int
        for point in found["eventbridge_deliveries"].sum.data_points
    }
    assert delivered["delivered"] == 5
    assert found["eventbridge_deliveries"].sum.is_monotonic
    (histogram,) = found["eventbridge_publish_to_delivered_seconds"].histogram.data_points
    assert (histogram.count, sum(histogram.bucket_counts)) == (5, 5)
    assert [point.as_int or point.as_double for point in found["eventbridge_lag_events"].gauge.data_points] == [0]


@pytest.mark.parametrize(("named", "reported"), [({}, "eventbridge"), ({"OTEL_SERVICE_NAME": "shop"}, "shop")])
def test_the_usual_variables_name_the_service_of_the_metrics(
    named: dict[str, str],
    reported: str,
    sending: Sending,
    collector: Collector,
    telemetry: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without one it is ours."""
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    sending.begin(1, crm="/healthy/crm")

    sender = MetricsSender()
    assert sender.send(metrics(sending.runtime))
    sender.close()

    ((_, body),) = [each for each in collector.bodies if each[0] == "/v1/metrics"]
    (sent,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert {each.key: each.value.string_value for each in sent.resource.attributes}["service.name"] == reported


def test_opentelemetry_is_not_imported_without_an_endpoint() -> None:
    """Neither by the stages nor by the server."""
    assert telemetry_from_environment({}) is NO_TELEMETRY
    code = (
        "import sys; from eventbridge.telemetry.selection import telemetry_from_environment as chosen;"
        "import eventbridge.pipeline.commit.stage; import eventbridge.api.serve;"
        "chosen({}); print([m for m in sys.modules if 'opentelemetry' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_usual_variables_decide_what_is_exported(environ: dict[str, str], wanted: Any) -> None:
    """An endpoint has to be set, and no variable may turn the signal off."""
    assert is_exported("traces", environ) == wanted


def test_a_wrong_ratio_is_refused() -> None:
    """With what to write."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_SAMPLER": "traceidratio"}
    with pytest.raises(SettingsError, match=r"such as 0\.01"):
        telemetry_from_environment(environ | {"OTEL_TRACES_SAMPLER_ARG": "1 %"})


def test_a_share_of_deliveries_is_traced() -> None:
    """About the ratio, and the same ones in every process."""
    from eventbridge.event.ids import delivery_id

    ids = [delivery_id("b", "s", str(number), "r", "t") for number in range(10_000)]
    chosen = [each for each in ids if trace_of(each, None, 0.01).sampled]

    assert 50 < len(chosen) < 200
    assert [each for each in ids if trace_of(each, None, 1.0).sampled] == ids
