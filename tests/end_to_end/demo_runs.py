"""Runs `make demo` with 1,000 flights, the store in a bucket and the ledger in PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys

from demo.config import ROOT


def deliver(**chosen: str) -> str:
    """Return the output of the demo with this BUS and MODE; fails unless it is reconciled."""
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
