"""The services of docker-compose.yaml, run natively, deliver and lose nothing though workers are killed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from demo.places import ROOT

pytestmark = pytest.mark.timeout(900)


def test_production_delivers_though_workers_are_killed() -> None:
    """Celery worker, Spark's master and a Spark worker are killed meanwhile; the books balance, topics say the same."""
    smoke = subprocess.run(
        [sys.executable, "-m", "demo.production.run", "--smoke", "10000"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert smoke.returncode == 0, smoke.stdout + smoke.stderr
