"""Hooks of the connection types `eventbridge_target` and `eventbridge_store`: what Airflow's button *Test* asks."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from eventbridge.config.connection import Connection
from eventbridge.errors import EventBridgeError
from eventbridge.orchestrate.connections import airflow_connection


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
        """Return the connection; raises ConnectionUnusable for what no target can use. Nothing is sent."""
        from eventbridge.targets.address import place_of
        from eventbridge.targets.credentials import credentials_of
        from eventbridge.targets.tls import tls_of

        connection = airflow_connection(self.target_conn_id)
        place_of(connection)
        credentials_of(connection)
        tls_of(connection)
        return connection

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a target can use the connection, and what to fix; nothing is sent."""
        try:
            self.get_conn()
        except EventBridgeError as error:
            return False, str(error)
        return True, "A target can use it. Nothing was sent"


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
        """Return the connection; raises ConnectionUnusable for what no store can use. Nothing is sent."""
        from eventbridge.s3.access import S3Access

        connection = airflow_connection(self.store_conn_id)
        S3Access.from_connection(connection)
        return connection

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a store can use the connection, and what to fix; the bucket is not asked."""
        try:
            self.get_conn()
        except EventBridgeError as error:
            return False, str(error)
        return True, "A store can use it. No bucket was asked"
