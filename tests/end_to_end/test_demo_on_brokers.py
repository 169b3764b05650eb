"""`make demo` on RocketMQ, with the store in a bucket and the ledger in PostgreSQL: the shipped rules run on them.

On Kafka they run in test_production_shape.py; `make demo BUS=kafka`, in both modes, in deep_demo_on_kafka.py.
"""

from __future__ import annotations

import pytest
from end_to_end.demo_runs import deliver

pytestmark = pytest.mark.timeout(900)


def test_the_demo_is_reconciled_on_rocketmq() -> None:
    """Two lines of YAML and a connection are other ones; every flight is accounted for, by the receiver too."""
    assert "Every flight is accounted for." in deliver(BUS="rocketmq")
