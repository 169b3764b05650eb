"""docs/howto/monitoring/dashboard.json: every query finds series on a real Prometheus that scrapes a real server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api.server import Installation, Server, order
from services.prometheus import prometheus, query

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime

FOLDER = Path(__file__).parents[2] / "docs" / "howto" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
QUERIES = [(panel["title"], each["expr"]) for panel in DASHBOARD["panels"] for each in panel["targets"]]
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
HEADERS = {"content-type": "application/cloudevents-batch+json"}

#: Panels without series on a healthy installation.
QUIET = {"List of unhealthy targets", "Oldest open batch"}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Prometheus that scraped before, between and after deliveries."""
    folder = tmp_path_factory.mktemp("scraped")
    made = Installation(folder)
    with Server(made) as server, server.client(made.token("shop", "publish:orders")) as shop:
        token = made.token("prometheus", "metrics")
        with prometheus(folder, server.url.removeprefix("http://"), token) as url:
            for numbers in (range(20), range(20, 40)):
                events = [order(number) for number in numbers]
                shop.post("/v1/buses/orders/events", json=events, headers=HEADERS).raise_for_status()
                _deliver(made)
                _wait(url, f'eventbridge_deliveries_total{{status="delivered"}} == {numbers.stop}')
            _wait(url, 'rate(eventbridge_deliveries_total{status="delivered"}[1m]) > 0')
            yield url


def _deliver(made: Installation) -> None:
    environ = {**os.environ, **made.environ}
    settings = Settings.from_mapping({name: value for name, value in environ.items() if name.startswith("EVENTBRIDGE")})
    runtime = open_runtime(settings, connections_from_environment(environ))
    try:
        deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store))
    finally:
        runtime.close()


def _wait(url: str, expression: str) -> None:
    until = time.monotonic() + 60
    while not query(url, expression):
        assert time.monotonic() < until, f"never true: {expression}"
        time.sleep(0.2)


@pytest.mark.parametrize(("title", "expression"), QUERIES, ids=lambda text: text[:40])
def test_every_query_of_the_dashboard_finds_series(title: str, expression: str, scraped: str) -> None:
    """Grafana's variables are replaced as Grafana does."""
    assert "eventbridge_" in expression
    found = query(scraped, expression.replace("$__rate_interval", "1m").replace("$bus", ".*"))

    assert bool(found) != (title in QUIET)


def test_panels_do_not_overlap() -> None:
    """Ids are unique, and every panel uses the selected data source."""
    places = [tuple(panel["gridPos"][name] for name in "xywh") for panel in DASHBOARD["panels"]]
    cells = [(x + dx, y + dy) for x, y, w, h in places for dx in range(w) for dy in range(h)]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {"${datasource}"}


def test_no_alert_fires_on_a_healthy_installation(scraped: str) -> None:
    """Except the one that always fires."""
    firing = [each["alert"] for each in ALERTS if query(scraped, each["expr"])]

    assert firing == ["EventBridgeWatchdog"]
