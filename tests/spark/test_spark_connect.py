from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from eventbridge.errors import SparkError
from eventbridge.routing.task import InProcessRouter
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect, forget, session_id

WORKERS = """
import os, sys
from eventbridge.spark.session import connect
def pids(batches):
    import os, time
    from pathlib import Path
    import pyarrow as pa
    for batch in batches:
        mine = Path(folder) / str(os.getpid())
        mine.touch()
        until = time.monotonic() + 60
        while len(list(mine.parent.iterdir())) < 2 and time.monotonic() < until:  # the other one is at work too
            time.sleep(0.01)
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()]})
folder = sys.argv[3]
frame = connect(sys.argv[1], sys.argv[2]).range(0, 2, 1, numPartitions=2).mapInArrow(pids, "pid long")
print(*sorted(row["pid"] for row in frame.collect()))
"""


def test_connect_routes_as_this_process_does(spark_server: SparkConnectServer, land: Callable[..., Any]) -> None:
    """Spark's workers give the same deliveries, row by row, and the same manifests."""
    landed = land()

    expected = landed.routed(InProcessRouter(landed.store))
    found = landed.routed(ConnectRouter(spark_server.url))

    assert sum(result["rows"] for result in expected) > 100
    assert any(result["detail"].failed for result in expected)
    assert found == expected


def test_every_try_writes_files_of_its_own(spark_server: SparkConnectServer, land: Callable[..., Any]) -> None:
    """A task that runs twice in one attempt writes two sets of files and changes none."""
    landed = land()
    router = ConnectRouter(spark_server.url)
    job = landed.again()

    first = list(router.route_slices(job, landed.slices))
    again = list(router.route_slices(job, landed.slices))

    assert {result.path for result in first}.isdisjoint({result.path for result in again})
    assert landed.comparable(first) == landed.comparable(again)


def test_a_workers_error_is_reported(spark_server: SparkConnectServer, land: Callable[..., Any]) -> None:
    """A worker's exception is shown in one line: the error, without Spark's wrapping."""
    landed = land()
    changed = structs.replace(landed.job, rule_set="0" * 32, attempt="x")  # no worker has read it: it was never written
    with pytest.raises(SparkError) as caught:
        list(ConnectRouter(spark_server.url).route_slices(changed, landed.slices))

    assert "eventbridge.errors.StoreFileMissing" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreachable_server_is_an_error_soon(land: Callable[..., Any]) -> None:
    """If nothing listens, a SparkError names the address after seconds, not after ten minutes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"sc://127.0.0.1:{probe.getsockname()[1]}"
    landed = land()

    with pytest.raises(SparkError, match=url):
        list(ConnectRouter(url).route_slices(landed.job, landed.slices))


def test_a_new_process_finds_warm_workers(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """The session id is the runner's: its next client process gets the same Python workers, another runner not."""

    def workers(runner: str) -> set[str]:
        folder = tempfile.mkdtemp(dir=tmp_path)
        command = [sys.executable, "-c", WORKERS, spark_server.url, runner, folder]
        return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split())

    first, again, other = workers("orders-warm"), workers("orders-warm"), workers("returns-warm")

    assert len(first) == 2
    assert again == first
    assert other.isdisjoint(first)


def test_a_closed_session_is_followed_by_the_next(spark_server: SparkConnectServer, land: Callable[..., Any]) -> None:
    """A session that the server closed for good does not stop its runner: the runner's next id is used."""
    landed = land()
    landed.routed(ConnectRouter(spark_server.url), runner="closing")
    connect(spark_server.url, "closing").stop()
    forget(spark_server.url, "closing")

    found = landed.routed(ConnectRouter(spark_server.url), runner="closing")

    assert len(found) == len(landed.slices)
    assert connect(spark_server.url, "closing").session_id == session_id("closing", 1)
