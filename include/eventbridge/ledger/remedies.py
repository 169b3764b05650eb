"""Turns what SQLAlchemy raises into LedgerError: what went wrong with the ledger, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from eventbridge.errors import LedgerError
from eventbridge.full_disk import full_disk, is_full

LOCKED = "database is locked"
FULL = "database or disk is full"
IO_ERROR = "disk I/O error"
UNOPENABLE = "unable to open database file"

#: Words of a database's message -> what to do; the first that occurs counts.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        LOCKED,
        "Another process has held the ledger for longer than the busy timeout: find it with `fuser -v {file} "
        "{file}.lock`, let it finish or end it, then run this again",
    ),
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
        "{file} is damaged: put the ledger back from a backup; the store still has every event and manifest",
    ),
    (
        UNOPENABLE,
        "Make sure that the folder {folder} exists (`mkdir -p {folder}`) and that this process may write to it "
        "(`ls -ld {folder}`)",
    ),
    (IO_ERROR, "Look at the disk that holds {folder} (`dmesg`, `df -h {folder}`), then run this again"),
    (
        "connection refused",
        "Start the database server of {url}, or correct EVENTBRIDGE_LEDGER_URL, then run this again",
    ),
    ("authentication failed", "Correct user and password in EVENTBRIDGE_LEDGER_URL"),
)
_NO_REMEDY = "Run this again; if it stays, look at the database itself"


@contextmanager
def ledger_errors(url: URL) -> Iterator[None]:
    """Raise LedgerError, with a remedy, for whatever SQLAlchemy raises inside."""
    try:
        yield
    except SQLAlchemyError as error:
        raise LedgerError(explain(str(getattr(error, "orig", None) or error), url)) from error


def explain(cause: str, url: URL) -> str:
    """Return what went wrong, then its remedy, in one line; never shows the password of a URL."""
    shown = url.render_as_string(hide_password=True)
    file = url.database or ""
    if FULL in cause or (IO_ERROR in cause and is_full(Path(file))):
        return f"Ledger {shown}: {full_disk(Path(file))}."
    places = {"file": file, "folder": file.rpartition("/")[0] or "/", "url": shown}
    remedy = next((text for words, text in _REMEDIES if words.lower() in cause.lower()), _NO_REMEDY)
    return f"Ledger {shown}: {' '.join(cause.split())}. {remedy.format(**places)}."
