"""The embedded bus on a server reads the ledger's URL as the ledger does, and reveals the password in it to no one."""

from __future__ import annotations

import pytest
from psycopg import OperationalError
from psycopg.conninfo import conninfo_to_dict

from eventbridge.errors import BusError
from eventbridge.sources.embedded import server
from eventbridge.sources.embedded.server import BusServer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the driver is asked to connect to; there is no server."""
    found: list[str] = []

    def refuse(conninfo: str, **_: object) -> None:
        found.append(conninfo)
        raise OperationalError("no such server")

    monkeypatch.setattr(server, "connect", refuse)
    return found


@pytest.mark.parametrize("password", ["50%off", "a/secret", "a secret'", "se#cret?"])
def test_any_password_reaches_only_the_server(asked: list[str], password: str) -> None:
    """SQLAlchemy takes all of them as they are where libpq's URLs would need them escaped."""
    with pytest.raises(BusError) as raised:
        BusServer(f"postgresql+psycopg://bus:{password}@db.example:5433/ledger?sslmode=require", "shop")

    (conninfo,) = asked
    known = conninfo_to_dict(conninfo)
    wanted = {"user": "bus", "password": password, "host": "db.example", "port": "5433", "dbname": "ledger"}
    assert {name: known.get(name) for name in wanted} == wanted
    assert known["sslmode"] == "require"
    assert str(raised.value).startswith("postgresql://db.example:5433/ledger#shop: ")
    assert password not in str(raised.value)


def test_a_server_lost_without_a_close_is_noticed(asked: list[str]) -> None:
    """As by the ledger; what the URL says counts more."""
    with pytest.raises(BusError):
        BusServer("postgresql://bus@db.example/ledger?keepalives_idle=5", "shop")

    known = conninfo_to_dict(asked[0])
    assert (known["tcp_user_timeout"], known["keepalives_idle"], known["keepalives_count"]) == ("60000", "5", "3")


def test_an_option_that_libpq_does_not_know_is_reported_without_the_password(asked: list[str]) -> None:
    """It is an error of the bus like others."""
    with pytest.raises(BusError, match="colour") as raised:
        BusServer("postgresql://bus:s3cret@db.example/ledger?colour=red", "shop")

    assert "s3cret" not in str(raised.value)
    assert not asked
