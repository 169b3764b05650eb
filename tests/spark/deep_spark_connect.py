"""Kills a Spark Connect server under a process that routes; `make test` does so below Airflow."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from eventbridge.errors import SparkError
from eventbridge.routing.task import InProcessRouter
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer


def test_a_server_killed_in_the_middle(tmp_path: Path, land: Callable[..., Any]) -> None:
    """Finished slices are kept, no worker survives, and the process continues with the next server."""
    landed = land(count=12_000, step=300)
    server = SparkConnectServer(tmp_path / "spark")
    server.start()
    try:
        router = ConnectRouter(server.url)
        results = router.route_slices(landed.again(), landed.slices)
        done = [next(results)]
        workers = psutil.Process(server.pid).children(recursive=True)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(SparkError, match="did not route batch"):
            done.extend(results)
        _, alive = psutil.wait_procs(workers, timeout=10)
        server.stop()
        server = SparkConnectServer(tmp_path / "spark", port=server.port, token=server.token)
        server.start()
        rest = landed.slices[len(done) :]

        done += router.route_slices(landed.again(), rest[:2])
    finally:
        server.stop()

    assert workers
    assert alive == []
    assert landed.comparable(done) == landed.comparable(
        list(InProcessRouter(landed.store).route_slices(landed.again(), landed.slices[: len(done)]))
    )
