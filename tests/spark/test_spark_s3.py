"""Routing with an S3 store on Spark: the workers find the connection only in Spark's environment."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from demo.s3_server import ACCESS_KEY, SECRET_KEY, S3Request, S3Server
from spark.local_submit import LocalSubmit
from spark.own_server import own_server

from eventbridge.errors import SparkError
from eventbridge.model.file_detail import RoutedShare
from eventbridge.routing.job import JobTasks, RouteJob, RuleShare, SliceResult
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules import Rule, RuleSet
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.submit import SubmitRouter
from eventbridge.store.open import open_store
from eventbridge.store.parquet import read_table
from eventbridge.store.rule_sets import freeze_rules, frozen_rules
from eventbridge.targets.file.fields import FileFields

APPLICATION = str(Path(__file__).parents[2] / "spark_apps" / "route_events.py")


@pytest.fixture(scope="module")
def spark_with_connection(
    s3_process: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkConnectServer]:
    """A Spark whose environment has the connection of the store."""
    environ = {**os.environ, "EVENTBRIDGE_CONN_S3": s3_process.connection}
    with own_server(tmp_path_factory.mktemp("spark"), environ=environ) as server:
        yield server


@pytest.fixture
def landed(s3_server: S3Server, land: Callable[..., Any]) -> Any:
    """A batch that was landed in an S3 store."""
    return land(store=open_store(f"s3://s3@tests/{uuid.uuid4().hex}"))


def test_workers_read_and_write_a_bucket(
    spark_with_connection: SparkConnectServer, landed: Any, s3_server: S3Server
) -> None:
    """The rows equal those of this process, with one put per slice and no listing."""
    expected = landed.routed(InProcessRouter(landed.store))
    job = landed.again()
    s3_server.requests.clear()
    results = list(ConnectRouter(spark_with_connection.url).route_slices(job, landed.slices))
    requests: list[S3Request] = list(s3_server.requests)

    assert landed.comparable(results) == expected
    assert sum(request.is_put for request in requests) == len(landed.slices)
    assert not any(request.is_listing for request in requests)
    assert all("aws-sdk-cpp" in request.headers["HTTP_USER_AGENT"] for request in requests)


def test_sql_is_asked_about_events_in_a_bucket(
    spark_with_connection: SparkConnectServer, landed: Any, s3_server: S3Server
) -> None:
    """Spark's workers read the candidate events there; the driver writes its results there and deletes them."""
    job, share = with_sql(landed)
    router = ConnectRouter(spark_with_connection.url, store=landed.store)

    s3_server.requests.clear()
    (result,) = router.route_slices(job, [share])
    requests = list(s3_server.requests)

    assert_asked(landed, share, result)
    assert not any(request.is_listing for request in requests)


def with_sql(landed: Any) -> tuple[RouteJob, RuleShare]:
    """Return the job of another try, whose rules have one more, in SQL, and the share of events of that one."""
    target = FileFields(name="lines", path="/tmp/never-written")
    rule = Rule(
        name="sql", bus="orders", runner="orders", pattern={}, where="data:amount::int > 50", targets={"lines": target}
    )
    known = frozen_rules(landed.store, landed.job.rule_set)
    rule_set = freeze_rules(landed.store, RuleSet(buses=known.buses, rules={**known.rules, "sql": rule}))
    share = RuleShare("rule/sql", "sql", ((landed.slices[0].file, "1-9"),), cpu_seconds=60)
    return landed.again(rule_set=rule_set), share


def assert_asked(landed: Any, share: RuleShare, result: SliceResult) -> None:
    """Assert that the share was routed as Spark responded, and that no response is left."""
    rows = read_table(landed.store, result.path or "").to_pylist()
    assert [row["event_id"] for row in rows] == ["6", "7", "8", "9"]
    assert isinstance(result.detail, RoutedShare)
    assert result.detail.rejected == ((landed.slices[0].file, "1-5"),)
    assert [path for path in landed.store.list("deliveries/") if "/sql/" in path] == []


def test_no_secret_travels_with_a_job(landed: Any, spark_with_connection: SparkConnectServer) -> None:
    """The job names the connection; its keys are neither in the job nor in Spark's files."""
    list(ConnectRouter(spark_with_connection.url).route_slices(landed.again(), landed.slices))
    travels = JobTasks(landed.job, tuple(landed.slices)).to_json().decode()
    seen = travels + spark_with_connection.log.read_text()

    assert "s3://s3@tests/" in travels
    assert ACCESS_KEY not in seen
    assert SECRET_KEY not in seen


def test_a_spark_without_the_connection(spark_server: SparkConnectServer, landed: Any) -> None:
    """The error says what is missing where, and which variable to set."""
    with pytest.raises(SparkError, match=r"environment of Spark's workers.*set EVENTBRIDGE_CONN_S3"):
        list(ConnectRouter(spark_server.url).route_slices(landed.again(), landed.slices))


def test_submit_routes_and_asks_in_a_bucket(landed: Any, tmp_path: Path, s3_server: S3Server) -> None:
    """With spark-submit, job file, responses and SQL results are in the bucket, and are read without a listing."""
    router = SubmitRouter(landed.store, APPLICATION, LocalSubmit(tmp_path / "submit"))
    job, share = with_sql(landed)
    s3_server.requests.clear()
    *plain, asked = router.route_slices(job, [*landed.slices, share])
    requests = list(s3_server.requests)

    expected = InProcessRouter(landed.store).route_slices(landed.again(rule_set=job.rule_set), landed.slices)
    assert landed.comparable(plain) == landed.comparable(expected)
    assert_asked(landed, share, asked)
    assert not any(request.is_listing for request in requests if "responses" in request.query or "job" in request.query)
    assert json.loads(landed.store.get(f"deliveries/date=2026-03-01/{job.batch_id}/{job.attempt}/job.json"))["tasks"]
