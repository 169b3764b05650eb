"""spark-submit beside Spark Connect, part by part. Run by `make test-deep`.

`make test` has one job by spark-submit do all of it: tests/spark/test_spark_s3.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark.local_submit import LocalSubmit
from spark.sql_site import SUBJECT, SqlSite, waiting

from eventbridge.config.connection import connections_from_environment
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.spark.submit import SubmitRouter

APPLICATION = str(Path(__file__).parents[2] / "spark_apps" / "route_events.py")


def test_spark_submit_routes_as_this_process_does(tmp_path: Path, land: Callable[..., Any]) -> None:
    """The submitted application gives the same deliveries and manifests, through the store."""
    landed = land()

    expected = landed.routed(InProcessRouter(landed.store))
    found = landed.routed(SubmitRouter(landed.store, APPLICATION, LocalSubmit(tmp_path / "spark")))

    assert found == expected


def test_spark_submit_asks_too(tmp_path: Path) -> None:
    """The submitted application evaluates `where` and SQL as Spark Connect does."""
    sql_site = SqlSite(tmp_path, "")
    runtime = open_runtime(sql_site.settings, connections_from_environment({}))
    sql_site.router = SubmitRouter(runtime.store, APPLICATION, LocalSubmit(tmp_path / "spark"))
    target = {"form": "SQL", "value": "data:n"}
    sql_site.write_rules(
        plain={}, sql={"where": "data:n::int > 3", "targets": {"a": target, "b": {}}}, held={"where": "no"}
    )
    runtime = sql_site.deliver(*SUBJECT)

    assert sql_site.received("sql-a") == [4, 5]
    assert sql_site.ids("sql-b") == "45"
    assert waiting(runtime) == [("held", "route_failed", "on_hold", 6)]
    assert [path for path in runtime.store.list("deliveries/") if "/sql/" in path and "held" not in path] == []
    assert audit(runtime).differences == ()
