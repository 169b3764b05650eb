"""A queue in a file, which delivers each message until it is acknowledged, for the worlds whose bus is a queue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa

from eventbridge.fault_points import reach
from eventbridge.sources.messages import RECEIVED

_INVISIBLE = timedelta(seconds=30)
_TABLE = "CREATE TABLE message (number INTEGER PRIMARY KEY, body BLOB, at TEXT, visible_at TEXT, receipt TEXT)"


class QueueFile:
    """A queue source that processes share and that is copied with its folder."""

    kind: Literal["queue"] = "queue"

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._clock = clock

    @property
    def uri(self) -> str:
        """The path of the file."""
        return str(self._path)

    @property
    def visibility_timeout(self) -> float:
        """How long a received message is not delivered again."""
        return _INVISIBLE.total_seconds()

    def publish(self, bodies: Sequence[bytes]) -> None:
        """Create the queue with these messages."""
        with self._writing() as connection:
            connection.execute(_TABLE)
            at = self._clock().isoformat()
            connection.executemany(
                "INSERT INTO message (body, at, visible_at, receipt) VALUES (?, ?, ?, '')",
                [(body, at, at) for body in bodies],
            )

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return visible messages with new receipts."""
        reach("bus.receive")
        now = self._clock()
        with self._writing() as connection:
            rows = connection.execute(
                "UPDATE message SET visible_at = ?, receipt = number || '-' || hex(randomblob(4)) WHERE number IN "
                "(SELECT number FROM message WHERE visible_at <= ? ORDER BY number LIMIT ?) "
                "RETURNING receipt, number, at, body",
                ((now + _INVISIBLE).isoformat(), now.isoformat(), at_most),
            ).fetchall()
        found = [
            {"receipt": receipt, "message_id": str(number), "published_at": datetime.fromisoformat(at), "body": body}
            for receipt, number, at, body in sorted(rows, key=lambda row: row[1])
        ]
        return pa.RecordBatch.from_pylist(found, schema=RECEIVED)

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Extend the visibility timeout of messages."""
        until = (self._clock() + _INVISIBLE).isoformat()
        with self._writing() as connection:
            connection.executemany(
                "UPDATE message SET visible_at = ? WHERE receipt = ?", [(until, each) for each in receipts]
            )
        return list(receipts)

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages that have not been delivered again since."""
        reach("bus.acknowledge")
        with self._writing() as connection:
            connection.executemany("DELETE FROM message WHERE receipt = ?", [(each,) for each in receipts])
        reach("bus.acknowledge.done")

    def waiting(self) -> int:
        """Count the unacknowledged messages."""
        with self._writing() as connection:
            count: int = connection.execute("SELECT count(*) FROM message").fetchone()[0]
            return count

    def close(self) -> None:
        """Do nothing, because no connection stays open."""

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
            yield connection
