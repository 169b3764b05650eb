"""The clock of an unreachable server continues by its last measurement."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import make_url

from eventbridge.errors import LedgerError
from eventbridge.ledger.engines import postgresql
from eventbridge.ledger.engines.postgresql import PostgresqlClock, PostgresqlEngine, _elapsed

START = datetime(2026, 3, 1, tzinfo=UTC)


class Waited(Exception):
    """A thread waits for the server to come back."""


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> PostgresqlEngine:
    """An engine that was connected to a server which is away; waiting for it raises Waited."""

    def wait(_seconds: float) -> None:
        raise Waited

    monkeypatch.setattr(postgresql.time, "sleep", wait)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = PostgresqlEngine(make_url(f"postgresql://nobody@127.0.0.1:{port}/ledger"), 30.0)
    engine._was_connected = True
    return engine


def test_a_known_time_is_returned_without_the_server(away: PostgresqlEngine) -> None:
    """Push loops ask at each delivery: they must not stand still meanwhile."""
    clock = PostgresqlClock(away)
    clock._measured = (START, _elapsed())

    assert START <= clock.now() < START + timedelta(seconds=5)


def test_an_unmeasured_clock_waits_for_the_server(away: PostgresqlEngine) -> None:
    """No other time exists to continue by."""
    with pytest.raises((Waited, LedgerError)):
        PostgresqlClock(away).now()
