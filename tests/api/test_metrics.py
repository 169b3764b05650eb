"""`GET /metrics`: format, permission, and agreement with the reconciliation after a process was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from api.server import Installation, Server, order
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime

OUR_OWN = "eventbridge_"
HEADERS = {"content-type": "application/cloudevents-batch+json"}


@pytest.fixture
def runtime(server: Server) -> Iterator[Runtime]:
    """A second runtime on the server's installation."""
    environ = {**os.environ, **server.installation.environ}
    settings = Settings.from_mapping({name: value for name, value in environ.items() if name.startswith("EVENTBRIDGE")})
    opened = open_runtime(settings, connections_from_environment(environ))
    yield opened
    opened.close()


@pytest.fixture
def scraper(server: Server, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client whose token may only read metrics."""
    with server.client(server.installation.token(f"prometheus-{tmp_path.name}", "metrics")) as opened:
        yield opened


def values(response: httpx.Response) -> dict[tuple[str, ...], float]:
    """Return the samples of a response by name and the values of their labels, in the order of the labels' names."""
    assert response.status_code == 200, response.text
    return {
        (sample.name.removeprefix(OUR_OWN), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_metrics_need_a_token(server: Server, scraper: httpx.Client, client: httpx.Client) -> None:
    """401 without a token, 403 with a token for something else; the scraper's token may not publish."""
    with server.client() as anonymous:
        assert anonymous.get("/metrics").status_code == 401
    refused = client.get("/metrics")
    assert refused.status_code == 403
    assert "no scope metrics" in refused.json()["detail"]
    assert scraper.post("/v1/buses/orders/events", json=[order()], headers=HEADERS).status_code == 403


def test_a_scrape_agrees_with_the_deliveries(
    server: Server, scraper: httpx.Client, client: httpx.Client, runtime: Runtime
) -> None:
    """Counters, lag and the histogram, as read by the official parsers of both formats."""
    before = values(scraper.get("/metrics"))
    assert ("lag_events", "orders", "orders") not in before, "no runner is registered yet"
    client.post("/v1/buses/orders/events", json=[order(number) for number in range(7)], headers=HEADERS)
    deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store))
    client.post("/v1/buses/orders/events", json=[order(7)], headers=HEADERS)

    found = values(scraper.get("/metrics"))

    assert found["events_total", "orders", "valid"] == 7
    assert found["deliveries_total", "orders", "delivered"] == 7
    assert found["matched_total", "orders"] == 7
    assert found["publish_to_delivered_seconds_count", "orders"] == 7
    assert found["publish_to_delivered_seconds_bucket", "orders", "+Inf"] == 7
    assert 0 < found["publish_to_delivered_seconds_sum", "orders"] < 600
    assert found["stage_seconds_count", "orders", "push"] == 1
    assert found["lag_events", "orders", "orders"] == found["available_events", "orders", "orders"] == 1
    assert found["in_flight_events", "orders", "orders"] == 0
    assert found["reconciliation_difference",] == 0
    assert found["bus_up", "orders"] == 1
    assert not any(name == "target_deliveries_total" for name, *_ in found)
    by_target = values(scraper.get("/metrics", params={"targets": "true"}))
    assert by_target["target_deliveries_total", "orders", "all-orders", "delivered", "archive"] == 7
    assert by_target["target_cpu_seconds_total", "orders", "all-orders", "delivered", "archive"] > 0


def test_openmetrics_is_offered(scraper: httpx.Client) -> None:
    """To a scraper that accepts it, such as Prometheus."""
    accept = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    response = scraper.get("/metrics", headers={"accept": accept})

    assert response.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics.text_string_to_metric_families(response.text)}
    assert {"eventbridge_events", "eventbridge_reconciliation_difference"} <= names


def test_every_metric_is_documented(scraper: httpx.Client) -> None:
    """docs/reference/metrics.md lists exactly these families."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    response = scraper.get("/metrics", params={"targets": "true"})
    found = {line.split()[2] for line in response.text.splitlines() if line.startswith("# TYPE")}

    named = {"eventbridge_" + part.partition("`")[0] for part in page.split("| `eventbridge_")[1:]}
    assert named == found


def test_a_killed_process_loses_no_stats(tmp_path: Path) -> None:
    """The stats are in the ledger: another server shows the same."""
    made = Installation(tmp_path)
    token = made.token("prometheus", "metrics", "publish:orders")
    with Server(made) as server, server.client(token) as scraper:
        scraper.post("/v1/buses/orders/events", json=[order(number) for number in range(3)], headers=HEADERS)
        made.deliver("orders")
        first = values(scraper.get("/metrics"))
        server.process.kill()
    with Server(made) as server, server.client(made.token("other", "metrics")) as scraper:
        second = values(scraper.get("/metrics"))

    assert {key: value for key, value in first.items() if key[0].endswith("_total")} == {
        key: value for key, value in second.items() if key[0].endswith("_total")
    }
    assert (first["deliveries_total", "orders", "delivered"], second["reconciliation_difference",]) == (3, 0)
