"""Airflow's connections as the product's own: looked up while a task runs, never while a DAG file is read."""

from __future__ import annotations

import time
from collections.abc import Callable

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable


def airflow_connection(connection_id: str) -> Connection:
    """Return the Airflow connection of that id; raises ConnectionUnusable where Airflow knows none or it is damaged.

    Only a running task may ask: the task SDK fetches it from the api-server, or from the secrets backends.
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
        extra={name: value for name, value in extra.items() if value is not None},  # a form's empty fields
    )


class Remembered:
    """Looks connections up, each again only after so many seconds or by `read_again`; a failure is not kept."""

    def __init__(self, seconds: float, look_up: Callable[[str], Connection] = airflow_connection) -> None:
        self._seconds = seconds
        self._look_up = look_up
        self._kept: dict[str, tuple[float, Connection]] = {}

    def __call__(self, connection_id: str) -> Connection:
        """Return a connection as it was a while ago at most."""
        known = self._kept.get(connection_id)
        if known is None or time.monotonic() - known[0] >= self._seconds:
            return self.read_again(connection_id)
        return known[1]

    def read_again(self, connection_id: str) -> Connection:
        """Return a connection as it is now, whatever is kept of it."""
        known = self._kept[connection_id] = time.monotonic(), self._look_up(connection_id)
        return known[1]
