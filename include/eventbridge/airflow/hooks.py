"""Defines the hooks of the connection types for targets and the store, for Airflow's button *Test*."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from eventbridge.airflow.connections import airflow_connection
from eventbridge.config.connection import Connection
from eventbridge.errors import EventBridgeError


class TargetHook(BaseHook):
    """Reads a connection as an http target does."""

    conn_name_attr = "target_conn_id"
    default_conn_name = "eventbridge_target_default"
    conn_type = "eventbridge_target"
    hook_name = "EventBridge target"

    def __init__(self, target_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target_conn_id = target_conn_id

    def get_conn(self) -> Connection:
        """Return the connection. Raises ConnectionUnusable if no http target can use it. Sends nothing."""
        from eventbridge.targets.http.address import origin_of
        from eventbridge.targets.http.credentials import credentials_of
        from eventbridge.targets.http.tls import tls_of

        connection = airflow_connection(self.target_conn_id)
        origin_of(connection)
        credentials_of(connection)
        tls_of(connection)
        return connection

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a target can use the connection, and what to fix. Sends nothing."""
        try:
            self.get_conn()
        except EventBridgeError as error:
            return False, str(error)
        return True, "A target can use this connection. Nothing was sent"


class StoreHook(BaseHook):
    """Reads a connection as a store in a bucket does."""

    conn_name_attr = "store_conn_id"
    default_conn_name = "eventbridge_store"
    conn_type = "eventbridge_store"
    hook_name = "EventBridge store"

    def __init__(self, store_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_conn_id = store_conn_id

    def get_conn(self) -> Connection:
        """Return the connection. Raises ConnectionUnusable if no store can use it. Sends nothing."""
        from eventbridge.clients.s3.access import S3Access

        connection = airflow_connection(self.store_conn_id)
        S3Access.from_connection(connection)
        return connection

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a store can use the connection, and what to fix. Sends no request to the bucket."""
        try:
            self.get_conn()
        except EventBridgeError as error:
            return False, str(error)
        return True, "A store can use this connection. No request was sent to the bucket"
