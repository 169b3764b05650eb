from __future__ import annotations

import pytest

from eventbridge.policy.capacity import FreeSpace, Watermarks, is_ingestion_stopped, quota_space, short_of


@pytest.mark.parametrize(
    ("was_stopped", "free", "stopped"),
    [
        pytest.param(False, 99, True, id="below the low line it stops"),
        pytest.param(False, 100, False, id="at the low watermark it continues"),
        pytest.param(True, 199, True, id="between both it stays stopped"),
        pytest.param(True, 200, False, id="at the high line it resumes"),
        pytest.param(True, None, False, id="a store that cannot say is never short"),
    ],
)
def test_ingestion_stops_below_and_resumes_above(was_stopped: bool, free: int | None, stopped: bool) -> None:
    """Stopped work needs more free space than running work."""
    assert is_ingestion_stopped(was_stopped, free, Watermarks(100, 200)) is stopped


@pytest.mark.parametrize(
    ("was_stopped", "used", "stopped"),
    [
        pytest.param(False, 99, False, id="below the quota it continues"),
        pytest.param(False, 100, True, id="at the quota it stops"),
        pytest.param(True, 91, True, id="between both it stays stopped"),
        pytest.param(True, 90, False, id="at the line to resume at it resumes"),
        pytest.param(False, 120, True, id="what was in progress may have passed it"),
    ],
)
def test_a_quota_is_a_room_with_lines(was_stopped: bool, used: int, stopped: bool) -> None:
    """A quota is full at its size in bytes, and free again at its resume size."""
    room = quota_space(used, 100, 90)

    assert (short_of([room], "quota" if was_stopped else None) is not None) is stopped


def test_each_room_resumes_at_its_own_line() -> None:
    """Disk and quota each resume at their own watermark."""
    disk, quota = FreeSpace("disk", 150, Watermarks(100, 200)), quota_space(95, 100, 90)

    assert short_of([disk, quota], None) is None
    assert short_of([disk, quota], "disk") == disk
    assert short_of([disk, quota], "quota") == quota
    assert short_of([disk._replace(free=200), quota], "disk") is None
