"""Looks up Airflow's connections as EventBridge connections while a task runs, never while a DAG file is parsed."""

from __future__ import annotations

import time
from collections.abc import Callable

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable


def airflow_connection(connection_id: str) -> Connection:
    """Return the Airflow connection with this id; raises ConnectionUnusable if there is none, or if it is damaged.

    Only a running task can call this, because the task SDK fetches it from the api-server or the secrets backends.
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
        extra={name: value for name, value in extra.items() if value is not None},  # without a form's empty fields
    )


class CachedConnections:
    """Looks connections up and caches each for a few seconds, or until `read_again`. It does not cache a failure."""

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
