"""Converts the exceptions of a database to LedgerError, with the error and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from eventbridge.errors import LedgerError
from eventbridge.files import full_disk_message
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.ledger.engines.shown_url import redact_url

_NO_REMEDY = "Run this again; if the error persists, check the database"


class DatabaseFailure(Exception):
    """An engine found that its database cannot be used."""


class TransactionLostError(LedgerError):
    """A transaction certainly did not commit and can be run again immediately; see `ledger.database`."""


@contextmanager
def ledger_errors(engine: LedgerEngine) -> Iterator[None]:
    """Raise LedgerError, with a remedy, for any exception of SQLAlchemy or the engine before a commit."""
    try:
        yield
    except (SQLAlchemyError, DatabaseFailure) as error:
        kind = TransactionLostError if engine.may_run_again(error) else LedgerError
        raise kind(_explain_error(error, engine)) from error


@contextmanager
def commit_errors(engine: LedgerEngine) -> Iterator[None]:
    """Raise LedgerError for an exception of a commit, which may have succeeded if only its response was lost."""
    try:
        yield
    except SQLAlchemyError as error:
        raise LedgerError(_explain_error(error, engine)) from error


def _explain_error(error: Exception, engine: LedgerEngine) -> str:
    return explain(str(getattr(error, "orig", None) or error), engine)


def explain(cause: str, engine: LedgerEngine) -> str:
    """Return the error and its remedy in one line, without the password of a URL."""
    shown = redact_url(engine.url)
    file = engine.url.database or ""
    if engine.is_full(cause):
        return f"Ledger {shown}: {full_disk_message(Path(file))}."
    host, port = engine.url.host or "localhost", str(engine.url.port or "")
    fields = {"file": file, "folder": file.rpartition("/")[0] or "/", "url": shown, "host": host, "port": port}
    remedy = next((text for words, text in engine.remedies if words.lower() in cause.lower()), _NO_REMEDY)
    return f"Ledger {shown}: {' '.join(cause.split())}. {remedy.format(**fields)}."
