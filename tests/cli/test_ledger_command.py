"""`eventbridge ledger` and `rules publish`: a ledger on a server, moved there, and one rule set for several hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from services.postgresql import Postgresql


@pytest.fixture
def url(postgresql_server: Postgresql) -> Iterator[str]:
    """Yield the URL of a database without tables, with a password that the server does not ask for."""
    made = postgresql_server.new_database()
    yield made.replace("postgres@", "postgres:hunter2@")
    postgresql_server.drop_database(made)


@pytest.fixture
def on_server(url: str, shop: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have a file name the ledger's URL, as a secret is mounted."""
    secret = Path(shop.write("ledger-url", url))
    monkeypatch.setenv("EVENTBRIDGE_LEDGER_URL_FILE", str(secret))
    return url


def test_only_migrate_makes_a_ledger_on_a_server(on_server: str, eventbridge: Callable[..., Any]) -> None:
    """Every other command says which one does, and exits with 4; afterwards they work."""
    before = eventbridge("status")

    assert before.code == 4
    assert "Run `eventbridge ledger migrate`" in before.err
    assert "hunter2" not in before.err
    assert "; before: no tables" in eventbridge("ledger", "migrate").out
    assert eventbridge("ledger", "migrate", "--json").json["before"] is not None
    assert eventbridge("status").code == 0


def test_a_ledger_is_named_by_what_a_command_prints(
    url: str, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a vault's client gives it."""
    monkeypatch.setenv("EVENTBRIDGE_LEDGER_URL_CMD", f"echo {url}")

    assert eventbridge("ledger", "migrate").code == 0
    assert eventbridge("audit").code == 0


def test_an_installation_moves_to_a_server(
    delivered: Any, url: str, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a delivery in which everything happened: copied, the reconciliation is what it was; a second copy is
    refused.
    """
    before = eventbridge("audit", "--json").json
    monkeypatch.setenv("EVENTBRIDGE_LEDGER_URL", url)
    assert eventbridge("ledger", "migrate").code == 0
    file = f"sqlite:///{delivered.folder / 'home' / 'ledger.sqlite'}"

    copied = eventbridge("ledger", "copy", file, "EVENTBRIDGE_LEDGER_URL", "--json")
    again = eventbridge("ledger", "copy", file, "EVENTBRIDGE_LEDGER_URL")

    assert copied.code == 0
    assert copied.json["rows"] == sum(copied.json["tables"].values()) > 20
    assert eventbridge("audit", "--json").json == before
    assert len(eventbridge("dead-letters", "list", "--json").json) > 0
    assert again.code == 2
    assert "hunter2" not in again.err


def test_rules_are_published_for_every_host(
    on_server: str, shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One host publishes; another, with an empty folder, delivers by it, and what both publish to a bus meets."""
    assert eventbridge("ledger", "migrate").code == 0
    assert eventbridge("rules", "publish").code == 2
    monkeypatch.setenv("EVENTBRIDGE_RULES_FROM", "published")
    assert "Run `eventbridge rules publish`" in eventbridge("events", "publish", "orders", shop.orders(1500)).err

    published = eventbridge("rules", "publish", "--json").json
    (shop.folder / "empty").mkdir()
    monkeypatch.setenv("EVENTBRIDGE_RULES_FOLDER", str(shop.folder / "empty"))
    assert eventbridge("events", "publish", "orders", shop.orders(1500, 10)).code == 0
    shop.environ.update(
        EVENTBRIDGE_RULES_FROM="published",
        EVENTBRIDGE_RULES_FOLDER=str(shop.folder / "empty"),
        EVENTBRIDGE_LEDGER_URL=on_server,
    )
    shop.deliver()

    assert published["changed"] == ["all-orders", "big-orders"]
    assert len((shop.folder / "archive.jsonl").read_text().splitlines()) == 2
    assert len((shop.folder / "accounts.jsonl").read_text().splitlines()) == 1
    assert not list((shop.folder / "home").glob("bus/*.sqlite"))
