"""Meanings and remedies of PostgreSQL's messages."""

from __future__ import annotations

from collections.abc import Sequence

_REACH = "Make sure that the server is up and can be reached from this host (`pg_isready -h {host} -p {port}`)"
_ACTIVITY = "`SELECT pid, state, query FROM pg_stat_activity WHERE datname = current_database()`"

#: Text in a message -> remedy; the first match counts.
REMEDIES: Sequence[tuple[str, str]] = (
    (
        "password authentication failed",
        "Correct the user or the password in EVENTBRIDGE_LEDGER_URL, or what its _CMD or _FILE gives",
    ),
    ("no password supplied", "Write a password into EVENTBRIDGE_LEDGER_URL, or name a file with it (PGPASSFILE)"),
    (
        "pg_hba.conf",
        "Have the server's pg_hba.conf accept this host, user and database, or correct EVENTBRIDGE_LEDGER_URL",
    ),
    (
        'database "',
        "Make the database on its server (`createdb {file}`), run `eventbridge ledger migrate`, then this again; or "
        "correct EVENTBRIDGE_LEDGER_URL",
    ),
    ('role "', "Make the user on the server (`createuser`), or correct EVENTBRIDGE_LEDGER_URL"),
    (
        "permission denied",
        "Give the user of EVENTBRIDGE_LEDGER_URL its own schema, or all rights in it "
        "(`GRANT ALL ON SCHEMA public TO <user>` and on its tables)",
    ),
    (
        "lock timeout",
        f"Another session has held rows of the ledger for longer than the busy timeout: find it with {_ACTIVITY}, let "
        "it finish or end it, then run this again",
    ),
    (
        "statement timeout",
        f"The server took longer than any statement of the ledger needs: see what holds it up with {_ACTIVITY}, then "
        "run this again",
    ),
    (
        "too many clients",
        "Raise max_connections of the server: each process of eventbridge keeps one connection; then run this again",
    ),
    ("connection slots", "Raise max_connections of the server, then run this again"),
    ("no space left", "The disk of the database's server is full: free some space there, then run this again"),
    ("read-only transaction", "This server is a standby: name the primary in EVENTBRIDGE_LEDGER_URL"),
    ("resolve host", "Correct the host in EVENTBRIDGE_LEDGER_URL, or this host's name service"),
    ("connection to server", _REACH),
    ("connection", _REACH),
    ("the database system is", _REACH),
)
