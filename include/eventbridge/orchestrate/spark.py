"""Where route runs: on the Spark that the Airflow connection `eventbridge_spark` names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable
from eventbridge.orchestrate.connections import airflow_connection
from eventbridge.spark.java import WORKER_DAEMON
from eventbridge.spark.land import ConnectLander
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.submit import SubmitRouter

if TYPE_CHECKING:
    from eventbridge.routing.job import Router
    from eventbridge.rule import Bus
    from eventbridge.stages.ingest.sharing import Lander
    from eventbridge.stages.runtime.runtime import Runtime

CONNECTION_ID = "eventbridge_spark"

#: What spark-submit runs: of this package, unless the connection's extra `application` names another place, such as
#: one that every node of a cluster can read.
APPLICATION = Path(__file__).parents[1] / "spark" / "apps" / "route_events.py"


def open_router(runtime: Runtime) -> Router:
    """Return the router that the connection's type asks for; only a running task may ask.

    Type `spark_connect`: a long-lived Spark Connect server. Type `spark`: a cluster, or `local[n]`, by spark-submit.
    Raises ConnectionUnusable for any other type.
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
                f"The Airflow connection {CONNECTION_ID!r} is of type {other!r}: it must be spark_connect, "
                "for a Spark Connect server, or spark, for spark-submit"
            )


def open_lander(bus: Bus) -> Lander | None:
    """Return who lands a large batch of a bus in parts: the workers of a Spark Connect server; only a task may ask.

    None where the bus is embedded or of queues, whose inbox is the ledger's; and where the connection is of another
    type, or there is none: route says what is wrong.
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

    # On this machine: this Python, and nothing that listens to others. A cluster's own configuration says it there.
    here = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    hook = SparkSubmitHook(
        conn_id=CONNECTION_ID,
        name="eventbridge route",
        application_args=list(arguments),
        conf=dict(WORKER_DAEMON),
        env_vars=here if connection.host.startswith("local") else None,
    )
    hook.submit(application)
