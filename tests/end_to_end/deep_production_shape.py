"""Every service of docker-compose.yaml, one of each, delivers by the demo's rules; part of `make test-deep`.

That also runs several of each, delivers ten times as many flights, and kills workers and Spark's master.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from demo.config import ROOT

pytestmark = pytest.mark.timeout(1800)  # fifteen services start, each with its own libraries

SMALL = {"WORKERS": "1", "PARALLELISM": "8", "SPARK_WORKERS": "1", "SPARK_CORES": "1", "PARSE_SECONDS": "600"}


def test_the_demos_rules_deliver_from_kafka_by_celery_with_the_ledger_in_postgresql_and_the_store_on_s3(
    tmp_path: Path,
) -> None:
    """10,000 flights are published by HTTP into Kafka; every one is accounted for, also by the receiver and the
    files.
    """
    command = [sys.executable, "-m", "demo.production.run", "--smoke", "10000", "--calm", "--shipped"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "production")],
        cwd=ROOT,
        env={**os.environ, **SMALL, "PYTHONPATH": f"tests{os.pathsep}."},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 of 15 targets have exactly the deliveries of the reconciliation" in done.stdout
    assert "Every flight is accounted for." in done.stdout
