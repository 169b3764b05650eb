"""`/eventbridge/metrics` in Airflow's api-server, with an API token and without a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from eventbridge.airflow.plugin import URL_PREFIX
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.api_tokens import create_token
from eventbridge.runtime.open import open_runtime

# Airflow's own application imports Starlette's test client, which warns of the client library that it finds.
pytestmark = pytest.mark.filterwarnings("ignore::starlette.exceptions.StarletteDeprecationWarning")

RULES = """
buses: {orders: {source: {type: embedded}}}
rules:
  all: {bus: orders, pattern: {}, targets: {file: {type: file, path: /tmp/never-written/x.jsonl}}}
"""


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A token of an installation that the environment variables name."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rules.yaml").write_text(RULES)
    environ = {"EVENTBRIDGE_HOME": str(tmp_path / "home"), "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    runtime = open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))
    _, secret = create_token(runtime, "prometheus", ["metrics"], None)
    runtime.close()
    return secret


def responses(*calls: dict[str, str], path: str = "/metrics") -> list[httpx.Response]:
    """Return the responses of Airflow's own application, with the plug-in's mounted as Airflow mounts it."""
    from airflow.api_fastapi.app import create_app

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app())
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
            return [await client.get(URL_PREFIX + path, headers=headers) for headers in calls]

    return asyncio.run(ask())


def test_airflow_serves_metrics_to_an_api_token(token: str) -> None:
    """It needs no login of Airflow, but a token."""
    refused, wrong, response = responses({}, {"authorization": "Bearer ebt_x"}, {"authorization": f"Bearer {token}"})

    assert (refused.status_code, wrong.status_code) == (401, 401)
    assert response.status_code == 200
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert "eventbridge_reconciliation_difference" in names


def test_nothing_else_is_mounted(token: str) -> None:
    """Events can only be published to `eventbridge serve`, and the page uses Airflow's login."""
    header = {"authorization": f"Bearer {token}"}
    found = [responses(header, path=path)[0].status_code for path in ("/v1/buses/orders/events", "/page/login")]

    assert found == [404, 404]
