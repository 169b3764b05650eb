"""`make demo` on Kafka in both modes, and on RocketMQ; part of `make test-deep`, like the production shape.

On RocketMQ the store is in a bucket, and the ledger in PostgreSQL.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from demo.config import ROOT

pytestmark = pytest.mark.timeout(900)


def deliver(**chosen: str) -> str:
    """Return the output of the demo of 1,000 flights with this BUS and MODE; fails unless it is reconciled."""
    usual = {"STORE": "s3", "LEDGER": "postgresql", "EVENTS": "1000"}
    demo = subprocess.run(
        [sys.executable, "-m", "demo.run"],
        cwd=ROOT,
        env={**os.environ, **usual, **chosen},
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    return demo.stdout


@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_the_demo_is_reconciled_on_kafka(mode: str) -> None:
    """Every flight is accounted for, also by the receiver."""
    assert "Every flight is accounted for." in deliver(BUS="kafka", MODE=mode)


def test_the_demo_is_reconciled_on_rocketmq() -> None:
    """Only two lines of YAML and a connection differ; every flight is accounted for, also by the receiver."""
    assert "Every flight is accounted for." in deliver(BUS="rocketmq")
