"""Where route runs: on the Spark that the Airflow connection `eventbridge_spark` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from eventbridge.errors import ConnectionUnusable
from eventbridge.orchestrate.connections import airflow_connection
from eventbridge.spark.route import ConnectRouter

if TYPE_CHECKING:
    from eventbridge.stages.route import Router

CONNECTION_ID = "eventbridge_spark"


def open_router() -> Router:
    """Return the router that the connection's type asks for; only a running task may ask.

    Type `spark_connect`: a long-lived Spark Connect server. Raises ConnectionUnusable for any other type.
    """
    connection = airflow_connection(CONNECTION_ID)
    match connection.type:
        case "spark_connect":
            return ConnectRouter(SparkConnectHook(CONNECTION_ID).get_connection_url())
        case other:
            raise ConnectionUnusable(f"The connection {CONNECTION_ID!r} is of type {other!r}; it must be spark_connect")
