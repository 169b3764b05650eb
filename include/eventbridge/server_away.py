"""What a client is told that finds no PostgreSQL server, or one that begins or ends; for the ledger and its buses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Options of every connection: a server that is gone without a word, its host dead, is noticed.
NOTICES_DEATH: Final[Mapping[str, int]] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

#: Words of libpq's and the server's messages.
_COMES_BACK = (
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
    """Return whether a server that told a client this may take it soon, so that it is worth waiting for."""
    return any(words in message for words in _COMES_BACK)
