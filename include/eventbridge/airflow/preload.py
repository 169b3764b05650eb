"""Imports modules in Airflow's processes before they fork, so that a task starts in 0.2 s instead of 2 s."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence

from eventbridge.airflow.settings import configured_settings
from eventbridge.errors import SettingsError

log = logging.getLogger(__name__)

#: The modules that the DAG files import. Each file is parsed in its own process, twice a minute. Parsing all of them
#: takes 2.1 s of CPU time, and 0.4 s if these modules are preloaded.
DAG_MODULES = (
    "eventbridge.airflow.dags.deliver_events",
    "eventbridge.airflow.dags.publish_events",
    "eventbridge.airflow.dags.replay_events",
    "eventbridge.airflow.dags.retry_deliveries",
    "eventbridge.ledger",
    "eventbridge.rules.load",
)

#: The modules that the stages import. Importing Spark's client alone takes 1.9 s. No module opens a connection or
#: starts a thread at import, so that a fork inherits only code.
TASK_MODULES = (
    *DAG_MODULES,  # a task parses its DAG's file first
    "pyspark.sql.connect.session",
    "pyarrow.parquet",
    "pandas",  # pyarrow imports this and the next module with its first table, which takes 1 s of CPU time
    "pyarrow.pandas_compat",
    "jinja2.sandbox",
    "eventbridge.airflow.tasks",
    "eventbridge.airflow.push",
    "eventbridge.airflow.pools",
    "eventbridge.airflow.connections",
    "eventbridge.airflow.spark",
    "eventbridge.spark.route",
    "eventbridge.spark.land",
    "eventbridge.pipeline.ingest.listen",
    "eventbridge.pipeline.ingest.buffer",
    "eventbridge.pipeline.route.stage",
    "eventbridge.delivery.push",
    "eventbridge.pipeline.settle.dead_letters",
    "eventbridge.pipeline.settle.pending",
    "eventbridge.pipeline.commit.stage",
    "eventbridge.pipeline.retry.plan",
    "eventbridge.sources.embedded.bus",
    "eventbridge.targets.open",
    "eventbridge.targets.http.open",
    "eventbridge.targets.file.target",
)


def preload(arguments: Sequence[str]) -> list[str]:
    """Import the modules that the children of an Airflow process need, and return those that cannot be imported.

    If a child imports such a module, it gets the error. `arguments` are the arguments of the command `airflow`. Only
    processes whose children run tasks or parse DAG files import anything, because others never use the modules.
    """
    missing = []
    for name in _modules(arguments):
        try:
            importlib.import_module(name)
        except Exception as error:  # the scheduler must start even if a module is broken
            log.warning("%s was not preloaded: %s", name, error)
            missing.append(name)
    return missing


def _modules(arguments: Sequence[str]) -> Sequence[str]:
    match list(arguments[:1]):
        case ["scheduler"] if not _schedulers_fork_tasks():
            return ()
        case ["scheduler"] | ["celery"]:
            # Importing these takes a third of a second, and only a store in a bucket needs them.
            return (*TASK_MODULES, "boto3", "botocore.client") if _store_is_bucket() else TASK_MODULES
        case ["dag-processor"]:
            return DAG_MODULES
        case _:
            return ()


def _schedulers_fork_tasks() -> bool:
    """Return whether tasks are children of the scheduler. With Celery or Kubernetes, other processes start them."""
    from airflow.configuration import conf

    return "LocalExecutor" in conf.get("core", "executor")


def _store_is_bucket() -> bool:
    try:
        return configured_settings().store_uri.startswith("s3:")
    except SettingsError:  # every task and every DAG file raises it too
        return False
