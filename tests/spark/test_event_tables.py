"""The tables of `eventbridge sql` as DataFrames: the same rows, from a folder and from a bucket."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import HTTP_TARGETS, open_shop
from demo.receiver import Receiver
from demo.s3_server import S3Server

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import UserError
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.spark import tables
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.views.sql import run_sql
from eventbridge.views.sql_tables import SQL_TABLES

ROOT = Path(__file__).parents[2]
#: The code on the page.
(CODE,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/howto/query-by-sql.md").read_text(), re.M | re.S)


def delivered(folder: Path, **settings: str) -> Mapping[str, str]:
    """Return the environment of a shop after a delivery in which everything happened."""
    shop = open_shop(folder)
    shop.environ.update(settings)
    with Receiver(shop.folder / "received.jsonl") as receiver:
        urls = {name: receiver.url(f"/{name}/orders") for name in ("gone", "bad", "flaky")}
        shop.write_rules(more=HTTP_TARGETS.format(**urls))
        lines = Path(shop.orders(500, 1500, 2500, 100)).read_text().splitlines()
        shop.run_process("events", "publish", "orders", shop.write("all.jsonl", *lines, "not json", "{}"))
        shop.deliver()
    return shop.environ


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a shop with a store in a folder."""
    return delivered(tmp_path_factory.mktemp("shop"))


def rows_by_sql(environ: Mapping[str, str], query: str) -> list[list[Any]]:
    """Return the rows of `eventbridge sql`."""
    runtime = open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))
    try:
        return run_sql(runtime, query, *time_range(runtime.clock(), "24h", None), 1_000).rows
    finally:
        runtime.close()


@pytest.mark.parametrize("table", SQL_TABLES)
def test_a_frame_has_the_columns_and_rows_of_the_table(
    spark_server: SparkConnectServer, environ: Mapping[str, str], table: str
) -> None:
    """All values are equal as text, apart from JSON and nested ones, which both write in their own way."""
    columns = [each for each in SQL_TABLES[table].columns if each.type != "JSON" and not each.type.endswith("]")]
    frame = getattr(tables(connect(spark_server.url, "tables"), "24h", environ=environ), table)

    assert frame.columns == [each.name for each in SQL_TABLES[table].columns]
    texts = [f"CAST({_microseconds(each.name, each.type, 'unix_micros')} AS STRING)" for each in columns]
    found = [tuple(row) for row in frame.selectExpr(*texts).collect()]
    by_sql = ", ".join(f"{_microseconds(each.name, each.type, 'epoch_us')}::VARCHAR" for each in columns)
    expected = [tuple(row) for row in rows_by_sql(environ, f"SELECT {by_sql} FROM {table}")]
    assert len(found) > 0
    assert sorted(found, key=str) == sorted(expected, key=str)


def _microseconds(name: str, kind: str, function: str) -> str:
    quoted = f'"{name}"' if function == "epoch_us" else f"`{name}`"
    return f"{function}({quoted})" if kind.startswith("TIMESTAMP") else quoted


def test_named_columns_are_read_alone(spark_server: SparkConnectServer, environ: Mapping[str, str]) -> None:
    """`select` reads no other column, and a misspelt name is an error at once."""
    found = tables(connect(spark_server.url, "tables"), environ=environ)

    assert found.notes == []
    assert found.select("deliveries", "status", "target").where("target = 'accounts'").collect() == [
        ("delivered", "accounts"),
        ("delivered", "accounts"),
    ]
    with pytest.raises(UserError, match="no column 'stauts'"):
        found.select("deliveries", "stauts")
    with pytest.raises(UserError, match="no table 'event'"):
        found.select("event")


def test_the_code_on_the_page_runs_on_a_bucket(s3_process: S3Server, tmp_path: Path) -> None:
    """In a session of its own, not Spark Connect, whose workers read the bucket without settings of Hadoop."""
    store = {"EVENTBRIDGE_STORE_URI": f"s3://s3@tests/{uuid.uuid4().hex}", "EVENTBRIDGE_CONN_S3": s3_process.connection}
    settings = delivered(tmp_path, **store)
    by_sql = "SELECT count(*), count(request) FROM deliveries WHERE status = 'delivered'"
    assert rows_by_sql(settings, by_sql) == [[6, 6]]
    submit = "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    environ = {
        **os.environ,
        **settings,
        **{"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": submit, "SPARK_LOCAL_IP": "127.0.0.1"},
    }

    run = subprocess.run(
        [sys.executable, "-c", CODE], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=180
    )

    assert run.returncode == 0, run.stderr[-3000:]
    shown = run.stdout.replace(" ", "")
    for row in ("|all-orders|dead_lettered|5|", "|order.placed|4600.00|", "|/shop|o3|all-orders|order.placed|"):
        assert row in shown
