"""A push and a retry batch of ordered targets keep the order when they are killed at calls that can lose data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults.order_world import CUSTOMERS, DIED, ORDERS, TARGETS

_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("stage", ["push", "retries"])
def test_a_process_that_dies_anywhere_keeps_the_order(stage: str, worlds: Path) -> None:
    """After any kill each target receives everything, each customer's orders in bus order, and all is reconciled.

    This test kills at every 48th call, because every world of the crash matrix has an ordered target too; the deep
    profile kills at every call.
    """
    step = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 48
    path = os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "faults.order_world", str(worlds / stage), stage, str(step)]

    done = subprocess.run(
        command, cwd=_TESTS, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )

    assert done.returncode == 0
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(trials) * step > 30, "a stage that reaches few fault points proves little"
    for number, trial in enumerate(trials, 1):
        what = f"{stage} killed at call {number}"
        last = 0 if number == len(trials) else DIED
        assert trial["codes"] == [last, 0, 0, 0], what
        assert (trial["differences"], trial["left"]) == ([], 0), what
        for target in TARGETS:
            for customer in CUSTOMERS:
                orders = [order for order in trial["got"][target] if order[0] == customer]
                wanted = [f"{customer}{order}" for order in range(2 * ORDERS)]
                assert list(dict.fromkeys(orders)) == wanted, f"{what}: {target}"
                assert last or orders == wanted, f"{what}: {target}"
