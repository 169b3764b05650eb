"""Turns what SQLAlchemy raises into LedgerError: what went wrong with the ledger, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import URL
from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

from eventbridge.errors import LedgerError

#: Words of a database's message -> what to do; the first that occurs counts.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        "database is locked",
        "Another process has held the ledger for longer than the busy timeout: find it with `fuser -v {file}`, "
        "let it finish or end it, then run this again",
    ),
    ("database or disk is full", "Free space on the disk that holds {folder}, then run this again; nothing was lost"),
    (
        "readonly database",
        "Give this process write permission for {file} and for its folder {folder} "
        "(`ls -ld {folder} {file}` shows whose they are)",
    ),
    (
        "file is not a database",
        "{file} is not a ledger: correct EVENTBRIDGE_LEDGER_URL, or put the ledger back from a backup",
    ),
    (
        "disk image is malformed",
        "{file} is damaged: put the ledger back from a backup; the store still has every event and its manifest",
    ),
    (
        "unable to open database file",
        "Make sure that the folder {folder} exists (`mkdir -p {folder}`) and that this process may write to it",
    ),
    ("disk I/O error", "Look at the disk that holds {folder} (`dmesg`, `df -h {folder}`), then run this again"),
    (
        "connection refused",
        "Start the database server of {url}, or correct EVENTBRIDGE_LEDGER_URL, then run this again",
    ),
    ("authentication failed", "Correct user and password in EVENTBRIDGE_LEDGER_URL"),
)


@contextmanager
def ledger_errors(url: URL) -> Iterator[None]:
    """Raise LedgerError, with a remedy, for whatever SQLAlchemy raises inside."""
    try:
        yield
    except SQLAlchemyError as error:
        raise LedgerError(explain(error, url)) from error


def explain(error: SQLAlchemyError, url: URL) -> str:
    """Return what went wrong in one line, followed by its remedy; never shows the password of a URL."""
    shown = url.render_as_string(hide_password=True)
    if isinstance(error, NoSuchModuleError):
        return f"No ledger can be kept in {shown}. Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file>."
    cause = str(getattr(error, "orig", None) or error).strip()
    file = url.database or ""
    places = {"file": file, "folder": file.rpartition("/")[0] or "/", "url": shown}
    for words, remedy in _REMEDIES:
        if words.lower() in cause.lower():
            return f"Ledger {shown}: {cause}. {remedy.format(**places)}."
    return f"Ledger {shown}: {cause}. Run this again; if it stays, look at the database itself."
