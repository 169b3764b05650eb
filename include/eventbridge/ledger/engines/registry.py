"""Chooses the engine of a ledger by the scheme of its URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from eventbridge.errors import SettingsError
from eventbridge.ledger.engines.postgresql import PostgresqlEngine
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.ledger.engines.shown_url import redact_url
from eventbridge.ledger.engines.sqlite import SqliteEngine

#: The time that a transaction waits for another process's transaction before it fails.
BUSY_TIMEOUT_SECONDS = 30.0

#: The engine factory for each URL scheme, without a driver. Its arguments are the URL and the busy timeout.
ENGINES: Mapping[str, Callable[[URL, float], LedgerEngine]] = {
    "sqlite": SqliteEngine,
    "postgresql": PostgresqlEngine,
    "postgres": PostgresqlEngine,
}

_SET_URL = "Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>."


def engine_of(text: str, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> LedgerEngine:
    """Return the engine of a ledger's URL. Raises SettingsError for a URL that cannot be a ledger."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # its message may contain a password
        raise SettingsError(f"The ledger's URL is not a valid URL. {_SET_URL}") from None
    if "@" in (url.host or ""):
        raise SettingsError(
            f"The host in the ledger's URL contains an @. Write an @ in the password as %40. {_SET_URL}"
        )
    scheme = url.drivername.partition("+")[0]
    shown = redact_url(url)
    if scheme not in ENGINES:
        raise SettingsError(f"No ledger can be kept in {shown}. {_SET_URL}")
    return ENGINES[scheme](url, busy_timeout_seconds)
