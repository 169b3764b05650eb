"""API tokens: shown once, stored as a hash, with scopes per bus, revoked and expired."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from api.server import Installation, Server, order

from eventbridge.cli import main

PATH = "/v1/buses/orders/events"
HEADERS = {"content-type": "application/cloudevents-batch+json"}


def status(client: httpx.Client, bus: str = "orders") -> int:
    """Publish one event and return the status."""
    return client.post(f"/v1/buses/{bus}/events", json=[order()], headers=HEADERS).status_code


@pytest.mark.parametrize("header", ["", "Bearer ebt_unknown", "Bearer", "Basic ZWJ0Xzo=", "Bearer \u00e9"])
def test_a_call_without_a_valid_token_is_401(header: str, server: Server) -> None:
    """No token, an unknown one, or another scheme: 401, with what to send."""
    headers = {**HEADERS, "authorization": header.encode("latin-1")} if header else HEADERS
    with server.client() as client:
        response = client.post(PATH, json=[order()], headers=headers)

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "token" in response.json()["detail"]


def test_a_token_is_limited_to_the_buses_of_its_scopes(server: Server) -> None:
    """One bus and no other; `publish:*` allows every bus."""
    made = server.installation
    with (
        server.client(made.token("one", "publish:orders")) as one,
        server.client(made.token("any", "publish:*")) as any_,
    ):
        assert [status(one), status(one, "invoices")] == [200, 403]
        assert [status(any_), status(any_, "invoices")] == [200, 200]


def test_a_revoked_token_is_refused_within_seconds(server: Server) -> None:
    """The running server notices by itself."""
    with server.client(server.installation.token("leaver", "publish:orders")) as client:
        assert status(client) == 200
        server.installation.run("tokens", "revoke", "leaver")
        end = time.monotonic() + 30
        while (seen := status(client)) == 200 and time.monotonic() < end:
            time.sleep(0.05)

    assert seen == 401


def test_an_expired_token_is_refused(server: Server) -> None:
    """`--expires` sets the lifetime."""
    output = server.installation.run(
        "tokens", "create", "brief", "--scope", "publish:orders", "--expires", "1ms", "--json"
    )
    with server.client(json.loads(output)["token"]) as client:
        assert status(client) == 401


def test_the_ledger_has_no_token(tmp_path: Path) -> None:
    """A token is `ebt_` and 256 random bits; the ledger has its hash, the list has neither."""
    made = Installation(tmp_path)
    token = made.token("shop", "publish:orders", "publish:invoices")

    listed = made.run("tokens", "list", "--json")
    (row,) = sqlite3.connect(tmp_path / "home" / "ledger.sqlite").execute("SELECT * FROM api_token").fetchall()

    assert token.startswith("ebt_")
    assert len(token) == len("ebt_") + 43
    assert token not in listed + str(row)
    assert json.loads(listed)[0]["scopes"] == ["publish:orders", "publish:invoices"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "shop"), "a token without a scope allows nothing"),
        (("create",), "name the token"),
        (("create", "--portal", "--ttl", "7d"), "the portal shows the rules of one owner"),
        (("create", "shop", "--scope", "publish"), "unknown scope 'publish'"),
        (("create", "shop", "--scope", "delete:orders"), "unknown scope 'delete:orders'"),
        (("create", "shop", "--scope", "publish:order"), "Did you mean orders?"),
        (("create", "a shop", "--scope", "publish:*"), "'a shop' is not a valid name for a token"),
        (("create", "shop", "--scope", "publish:*", "--expires", "soon"), "'soon' is not a duration"),
        (("create", "there", "--scope", "publish:*"), "a token 'there' exists or has existed"),
        (("revoke", "her"), "Did you mean there?"),
    ],
)
def test_an_error_creates_no_token(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, with the remedy."""
    made = Installation(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)

    def run(*given: str) -> Any:
        monkeypatch.setattr("sys.argv", ["eventbridge", "tokens", *given])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    assert run("create", "there", "--scope", "publish:*") == 0
    assert run(*arguments) == 2
    assert said in capsys.readouterr().err
    run("list", "--json")
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["there"]
