"""Turns what a database raises into LedgerError: what went wrong with the ledger, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from eventbridge.disk_space import full_disk
from eventbridge.errors import LedgerError
from eventbridge.ledger.engines.protocol import LedgerEngine

_NO_REMEDY = "Run this again; if it stays, look at the database itself"


class DatabaseFailure(Exception):
    """An engine itself found that its database cannot be used."""


@contextmanager
def ledger_errors(engine: LedgerEngine) -> Iterator[None]:
    """Raise LedgerError, with a remedy, for whatever SQLAlchemy or the engine raises inside."""
    try:
        yield
    except (SQLAlchemyError, DatabaseFailure) as error:
        raise LedgerError(explain(str(getattr(error, "orig", None) or error), engine)) from error


def explain(cause: str, engine: LedgerEngine) -> str:
    """Return what went wrong, then its remedy, in one line; never shows the password of a URL."""
    shown = engine.url.render_as_string(hide_password=True)
    file = engine.url.database or ""
    if engine.is_full(cause):
        return f"Ledger {shown}: {full_disk(Path(file))}."
    places = {"file": file, "folder": file.rpartition("/")[0] or "/", "url": shown}
    remedy = next((text for words, text in engine.remedies if words.lower() in cause.lower()), _NO_REMEDY)
    return f"Ledger {shown}: {' '.join(cause.split())}. {remedy.format(**places)}."
