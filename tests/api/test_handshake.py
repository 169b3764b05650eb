"""`OPTIONS` of the publish endpoint and of webhooks: the handshake of CloudEvents web hooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from api.server import Installation, Server
from api.test_hooks import HOOKS

ORIGIN = "WebHook-Request-Origin"
RATE = "WebHook-Request-Rate"
PATHS = ("/v1/buses/orders/events", "/v1/buses/nothing/events", "/v1/hooks/code", "/v1/hooks/nothing")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client without a token of a server that allows one sender."""
    made = Installation(
        tmp_path_factory.mktemp("asked"),
        more=HOOKS,
        EVENTBRIDGE_WEBHOOK_ALLOWED_ORIGINS="eventgrid.azure.net, events.example",
    )
    with Server(made) as server, server.client() as client:
        yield client


def seen(response: httpx.Response) -> tuple[object, ...]:
    """Return all of a response that its sender sees, but for the date."""
    return (
        response.status_code,
        response.content,
        sorted(each for each in response.headers.items() if each[0] != "date"),
    )


@pytest.mark.parametrize("path", PATHS)
def test_an_allowed_sender_gets_the_consent(asked: httpx.Client, path: str) -> None:
    """The response repeats the origin and the rate that it asks for; without a rate, there is no limit."""
    response = asked.options(path, headers={ORIGIN: "EventGrid.azure.net", RATE: "120"})
    unlimited = [asked.options(path, headers={ORIGIN: "events.example", RATE: rate}) for rate in ("", "0", "-1", "x")]

    assert response.status_code == 200
    assert response.headers["webhook-allowed-origin"] == "EventGrid.azure.net"
    assert response.headers["webhook-allowed-rate"] == "120"
    assert response.headers["allow"] == "POST"
    assert [each.headers["webhook-allowed-rate"] for each in unlimited] == ["*"] * 4


@pytest.mark.parametrize("headers", [{}, {ORIGIN: "evil.example"}, {ORIGIN: "sub.events.example"}, {ORIGIN: "*"}])
@pytest.mark.parametrize("path", PATHS)
def test_any_other_sender_gets_no_consent(asked: httpx.Client, path: str, headers: dict[str, str]) -> None:
    """The problem names the setting, and is that of a server that does not have the method."""
    response = asked.options(path, headers=headers)

    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert "EVENTBRIDGE_WEBHOOK_ALLOWED_ORIGINS" in response.json()["detail"]
    assert not [name for name in response.headers if name.startswith("webhook-")]


@pytest.mark.parametrize("origin", ["events.example", "evil.example"])
def test_the_handshake_reveals_no_name(asked: httpx.Client, origin: str) -> None:
    """A bus or webhook that exists looks like one that does not."""
    responses = [seen(asked.options(path, headers={ORIGIN: origin})) for path in PATHS]

    assert responses == [responses[0]] * 4


def test_without_the_setting_nobody_is_allowed(client: httpx.Client) -> None:
    """The handshake is off by default."""
    response = client.options("/v1/hooks/code", headers={ORIGIN: "events.example"})

    assert response.status_code == 405
    assert "webhook-allowed-origin" not in response.headers


def test_an_asterisk_allows_every_sender(tmp_path: Path) -> None:
    """The response then names no origin."""
    with Server(Installation(tmp_path, EVENTBRIDGE_WEBHOOK_ALLOWED_ORIGINS="*")) as server, server.client() as client:
        response = client.options("/v1/hooks/code", headers={ORIGIN: "anyone.example"})

    assert response.headers["webhook-allowed-origin"] == "*"
