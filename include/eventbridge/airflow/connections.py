"""Looks up Airflow's connections as EventBridge connections, never while a DAG file is parsed."""

from __future__ import annotations

import time
from collections.abc import Callable

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable


def airflow_connection(connection_id: str) -> Connection:
    """Return the Airflow connection with this id. Raises ConnectionUnusable if it does not exist or is damaged.

    Tasks, the triggerer and the api-server call this. A DAG file must not, because each parse would look it up again.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowException

    try:
        found = BaseHook.get_connection(connection_id)
        extra = found.extra_dejson
    except (AirflowException, ValueError) as error:
        raise ConnectionUnusable(
            f"Airflow has no usable connection {connection_id!r} ({error}). Add it in Admin > Connections, "
            "or with: airflow connections import FILE"
        ) from error
    return Connection(
        id=connection_id,
        type=found.conn_type or "",
        host=found.host or "",
        port=found.port,
        login=found.login or "",
        password=found.password or "",
        schema=found.schema or "",
        extra={name: value for name, value in extra.items() if value is not None},  # None is an empty field of a form
    )


class CachedConnections:
    """Looks up connections, and caches each for some seconds, or until `read_again`. Failures are not cached."""

    def __init__(self, seconds: float, look_up: Callable[[str], Connection] = airflow_connection) -> None:
        self._seconds = seconds
        self._look_up = look_up
        self._cached: dict[str, tuple[float, Connection]] = {}

    def __call__(self, connection_id: str) -> Connection:
        """Return a connection, at most `seconds` old."""
        cached = self._cached.get(connection_id)
        if cached is None or time.monotonic() - cached[0] >= self._seconds:
            return self.read_again(connection_id)
        return cached[1]

    def read_again(self, connection_id: str) -> Connection:
        """Return a connection as it is now, and cache it."""
        cached = self._cached[connection_id] = time.monotonic(), self._look_up(connection_id)
        return cached[1]
