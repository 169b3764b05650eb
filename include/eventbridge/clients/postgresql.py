"""Recognises errors of a PostgreSQL server that is down, starting or stopping; for the ledger and embedded buses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Options of every connection, which detect a server whose host died without closing the connection. Times are in
#: seconds, but `tcp_user_timeout` is in milliseconds.
NOTICES_DEATH: Final[Mapping[str, int]] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

#: Parts of messages from libpq and the server that report a state that may soon end.
_TEMPORARY_STATES = (
    "Connection refused",
    "Connection reset",
    "No such file or directory",  # of a Unix socket
    "the database system is",  # starting up, shutting down, in recovery mode, not yet accepting connections
    "server closed the connection",
    "terminating connection",
    "too many clients",
    "remaining connection slots",
    "timeout expired",
)


def may_come_back(message: str) -> bool:
    """Return whether the server that caused this error may soon accept connections, so that a client should wait."""
    return any(words in message for words in _TEMPORARY_STATES)
