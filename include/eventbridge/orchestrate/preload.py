"""Imports what tasks need before their processes are forked: a task then starts in 0.2 s instead of 2 s."""

from __future__ import annotations

import importlib
import logging

from eventbridge.errors import SettingsError
from eventbridge.orchestrate.settings import configured_settings

log = logging.getLogger(__name__)

#: What the stages import, Spark's client first: it alone takes 1.9 s. None of them opens a connection or starts a
#: thread at import, so that a fork inherits nothing but code.
MODULES = (
    "pyspark.sql.connect.session",
    "pyarrow.parquet",
    "pandas",  # pyarrow imports both at its first table: 1 s of CPU
    "pyarrow.pandas_compat",
    "jinja2.sandbox",
    "eventbridge.orchestrate.tasks",
    "eventbridge.orchestrate.push",
    "eventbridge.orchestrate.pools",
    "eventbridge.orchestrate.connections",
    "eventbridge.orchestrate.spark",
    "eventbridge.spark.route",
    "eventbridge.spark.land",
    "eventbridge.stages.ingest.listen",
    "eventbridge.stages.ingest.buffer",
    "eventbridge.stages.route.stage",
    "eventbridge.stages.push.stage",
    "eventbridge.stages.settle.letters",
    "eventbridge.stages.settle.parking",
    "eventbridge.stages.commit.stage",
    "eventbridge.stages.retry.plan",
    "eventbridge.sources.embedded.open",
    "eventbridge.targets.open",
    "eventbridge.targets.http_open",
    "eventbridge.targets.file.open",
)


def preload() -> list[str]:
    """Import every module of `MODULES` and return those that could not be; a task meets their errors by itself."""
    missing = []
    # A third of a second, for those who keep their store in a bucket only.
    clients = ("boto3", "botocore.client") if _store_is_bucket() else ()
    for name in (*MODULES, *clients):
        try:
            importlib.import_module(name)
        except Exception as error:  # the scheduler must start whatever is wrong with one module
            log.warning("%s is not loaded ahead: %s", name, error)
            missing.append(name)
    return missing


def _store_is_bucket() -> bool:
    try:
        return configured_settings().store_uri.startswith("s3:")
    except SettingsError:  # every task and every DAG file says so too
        return False
