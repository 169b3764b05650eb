"""The connection `eventbridge_spark` decides where route runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbridge.airflow.spark import APPLICATION, open_router
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import ConnectionUnusable
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.submit import SubmitRouter


@pytest.fixture
def runtime(home: Path) -> Iterator[Runtime]:
    """Open a runtime."""
    opened = open_runtime(Settings(home=home), connections_from_environment({}))
    yield opened
    opened.close()


def test_a_connect_server_is_reached_at_its_url(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type spark_connect: host, port and token of the connection become the URL, by the provider's hook."""
    monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_SPARK", "spark-connect://:secret@spark.example:15002")
    router = open_router(runtime)

    assert isinstance(router, ConnectRouter)
    assert router._url == "sc://spark.example:15002/;token=secret"


def test_another_type_is_refused(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the two valid types."""
    monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_SPARK", "http://spark.example")
    with pytest.raises(ConnectionUnusable, match=r"'http'.*spark_connect.*spark"):
        open_router(runtime)


def test_the_default_application_exists() -> None:
    """The application that spark-submit runs by default exists."""
    assert APPLICATION.is_file()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the provider's hook leaves a pipe open
def test_spark_submit_gets_the_application_and_its_arguments(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Type spark: the provider's hook calls spark-submit with the master, the router's arguments and the worker
    daemon.
    """
    written = tmp_path / "written.json"
    application = tmp_path / "application.py"
    application.write_text(
        "import json, os, sys, pyspark\n"
        "pyspark.SparkContext._ensure_initialized()\n"  # else a SparkConf knows nothing of what was submitted
        "daemon = pyspark.SparkConf().get('spark.python.daemon.module')\n"
        f"open({str(written)!r}, 'w').write(json.dumps([sys.argv[1:], os.environ['PYSPARK_PYTHON'], daemon]))\n"
    )
    fields = {"conn_type": "spark", "host": "local[1]", "extra": {"application": str(application)}}
    monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_SPARK", json.dumps(fields))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    router = open_router(runtime)
    assert isinstance(router, SubmitRouter)
    router._submit(router._application, ["file:///store", "a/job.json"])

    arguments, python, daemon = json.loads(written.read_text())
    assert (arguments, python) == (["file:///store", "a/job.json"], sys.executable)
    assert daemon == "eventbridge.spark.worker_daemon"
