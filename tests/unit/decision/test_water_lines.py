from __future__ import annotations

import pytest

from eventbridge.decision.water_lines import WaterLines, is_intake_stopped


@pytest.mark.parametrize(
    ("was_stopped", "free", "stopped"),
    [
        pytest.param(False, 99, True, id="below the low line it stops"),
        pytest.param(False, 100, False, id="at the low line it goes on"),
        pytest.param(True, 199, True, id="between both it stays stopped"),
        pytest.param(True, 200, False, id="at the high line it resumes"),
        pytest.param(True, None, False, id="a store that cannot say is never short"),
    ],
)
def test_intake_stops_below_and_resumes_above(was_stopped: bool, free: int | None, stopped: bool) -> None:
    """What was stopped needs more free space than what goes on."""
    assert is_intake_stopped(was_stopped, free, WaterLines(100, 200)) is stopped
