"""`make demo BUS=kafka` in both modes; `make test` runs its rules on Kafka in the production shape."""

from __future__ import annotations

import pytest
from end_to_end.demo_runs import deliver

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_the_demo_is_reconciled_on_kafka(mode: str) -> None:
    """Every flight is accounted for, also by the receiver."""
    assert "Every flight is accounted for." in deliver(BUS="kafka", MODE=mode)
