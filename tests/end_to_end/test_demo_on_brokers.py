"""`make demo` on RocketMQ, with the store in a bucket and the ledger in PostgreSQL.

test_production_shape.py delivers from Kafka; deep_demo_on_kafka.py runs `make demo BUS=kafka` in both modes.
"""

from __future__ import annotations

import pytest
from end_to_end.demo_runs import deliver

pytestmark = pytest.mark.timeout(900)


def test_the_demo_is_reconciled_on_rocketmq() -> None:
    """Only two lines of YAML and a connection differ; every flight is accounted for, also by the receiver."""
    assert "Every flight is accounted for." in deliver(BUS="rocketmq")
