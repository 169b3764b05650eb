"""Imports modules in Airflow's processes before they fork, so that a task starts in 0.2 s instead of 2 s."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence

from eventbridge.airflow.settings import configured_settings
from eventbridge.errors import SettingsError

log = logging.getLogger(__name__)

#: The modules that the DAG files import. Each file is parsed in its own process, twice a minute, which takes 2.1 s of
#: CPU time in all, but 0.4 s if these modules are preloaded.
DAG_MODULES = (
    "eventbridge.airflow.dags.deliver_events",
    "eventbridge.airflow.dags.publish_events",
    "eventbridge.airflow.dags.replay_events",
    "eventbridge.airflow.dags.retry_deliveries",
    "eventbridge.ledger",
    "eventbridge.rules.load",
)

#: The modules that the stages import, Spark's client first, because it alone takes 1.9 s. None opens a connection or
#: starts a thread at import, so that a fork inherits only code.
TASK_MODULES = (
    *DAG_MODULES,  # a task parses its DAG's file first
    "pyspark.sql.connect.session",
    "pyarrow.parquet",
    "pandas",  # pyarrow imports both at its first table: 1 s of CPU
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
    """Import the modules that the children of an Airflow process need; return those that cannot be imported.

    A child that imports such a module gets the error.

    `arguments` are the arguments of the command `airflow`. Only a process whose children are tasks or parse DAG files
    imports anything, because the others would pay for modules that they never use.
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
            # These take a third of a second, and only a store in a bucket needs them.
            return (*TASK_MODULES, "boto3", "botocore.client") if _store_is_bucket() else TASK_MODULES
        case ["dag-processor"]:
            return DAG_MODULES
        case _:
            return ()


def _schedulers_fork_tasks() -> bool:
    """Return whether an executor is local; with Celery or Kubernetes, tasks are children of other processes."""
    from airflow.configuration import conf

    return "LocalExecutor" in conf.get("core", "executor")


def _store_is_bucket() -> bool:
    try:
        return configured_settings().store_uri.startswith("s3:")
    except SettingsError:  # every task and every DAG file reports it too
        return False
