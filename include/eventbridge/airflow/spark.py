"""Opens the Spark router and the Spark lander that the Airflow connection `eventbridge_spark` configures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from eventbridge.airflow.connections import airflow_connection
from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable
from eventbridge.spark.environment import WORKER_DAEMON
from eventbridge.spark.land import ConnectLander
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.submit import SubmitRouter

if TYPE_CHECKING:
    from eventbridge.pipeline.ingest.sharing import Lander
    from eventbridge.routing.job import Router
    from eventbridge.rules import Bus
    from eventbridge.runtime.runtime import Runtime

CONNECTION_ID = "eventbridge_spark"

#: The application that spark-submit runs. Set `application` in the connection's extra to use another path, for example
#: one that every node of a cluster can read.
APPLICATION = Path(__file__).parents[1] / "spark" / "apps" / "route_events.py"


def open_router(runtime: Runtime) -> Router:
    """Return the router for the connection's type. Only a running task may call this.

    A connection of type `spark_connect` names a long-lived Spark Connect server. One of type `spark` names a cluster or
    `local[n]`, for spark-submit. Raises ConnectionUnusable for any other type.
    """
    connection = airflow_connection(CONNECTION_ID)
    match connection.type:
        case "spark_connect":
            return ConnectRouter(SparkConnectHook(CONNECTION_ID).get_connection_url(), store=runtime.store)
        case "spark":
            application = str(connection.extra.get("application", APPLICATION))
            return SubmitRouter(
                runtime.store, application, lambda name, arguments: _submit(connection, name, arguments)
            )
        case other:
            raise ConnectionUnusable(
                f"The Airflow connection {CONNECTION_ID!r} is of type {other!r}. Set its type to spark_connect, "
                "for a Spark Connect server, or to spark, for spark-submit"
            )


def open_lander(bus: Bus) -> Lander | None:
    """Return a lander that lands a bus's batches on the workers of a Spark Connect server. Only for a running task.

    Returns None if the bus is embedded, or if it has a queue source, whose inbox is in the ledger. Also returns None if
    the connection for Spark is missing or has another type; the `route` task reports an unusable connection.
    """
    if bus.source.is_queue or not getattr(bus.source, "connection", None):
        return None
    try:
        connection = airflow_connection(CONNECTION_ID)
    except ConnectionUnusable:
        return None
    if connection.type != "spark_connect":
        return None
    return ConnectLander(SparkConnectHook(CONNECTION_ID).get_connection_url())


def _submit(connection: Connection, application: str, arguments: Sequence[str]) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    # On this machine, Spark uses this Python and only the loopback address. A cluster has its own configuration.
    here = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    hook = SparkSubmitHook(
        conn_id=CONNECTION_ID,
        name="eventbridge route",
        application_args=list(arguments),
        conf=dict(WORKER_DAEMON),
        env_vars=here if connection.host.startswith("local") else None,
    )
    hook.submit(application)
