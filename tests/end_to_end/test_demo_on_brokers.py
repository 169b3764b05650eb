"""`make demo` on a broker, with the store in a bucket and the ledger in PostgreSQL: the shipped rules run on them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from demo.places import ROOT

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(("bus", "mode"), [("kafka", "express"), ("rocketmq", "staged")])
def test_the_demo_balances_its_books_on_a_broker(bus: str, mode: str) -> None:
    """Two lines of YAML and a connection are other ones; every flight is accounted for, by the receiver too."""
    chosen = {"BUS": bus, "MODE": mode, "STORE": "s3", "LEDGER": "postgresql", "EVENTS": "1000"}
    demo = subprocess.run(
        [sys.executable, "-m", "demo.run"],
        cwd=ROOT,
        env={**os.environ, **chosen},
        capture_output=True,
        text=True,
        check=False,
    )

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "The books balance: every flight is accounted for." in demo.stdout
