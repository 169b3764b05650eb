from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from spark.local_submit import LocalSubmit

from eventbridge.errors import SparkError
from eventbridge.routing.job import Slice, SliceResult
from eventbridge.routing.task import InProcessRouter
from eventbridge.spark.submit import SubmitRouter

APPLICATION = str(Path(__file__).parents[2] / "spark_apps" / "route_events.py")


def test_a_job_that_fails_keeps_the_finished_slices(tmp_path: Path, land: Callable[..., Any]) -> None:
    """Slices finished before the job failed are yielded; then the first Python error is raised."""
    landed = land()
    bad = Slice("999999", "buffer/bus=orders/date=2026-03-01/hour=12/gone.parquet", 0, 10)
    router = SubmitRouter(landed.store, APPLICATION, LocalSubmit(tmp_path / "spark", master="local[1]"))
    done: list[SliceResult] = []

    with pytest.raises(SparkError, match=r"did not route batch .*eventbridge\.errors\.StoreFileMissing"):
        done.extend(router.route_slices(structs.replace(landed.job, attempt="x"), [*landed.slices, bad]))

    assert landed.comparable(done) == landed.routed(InProcessRouter(landed.store))


def test_the_application_shows_its_usage() -> None:
    """Without its two arguments the application prints its usage and starts no Spark."""
    output = subprocess.run([sys.executable, APPLICATION], capture_output=True, text=True, check=False)

    assert (output.returncode, output.stderr) == (2, "usage: route_events.py STORE_URI JOB_FILE\n")
