"""A bus rejects events when its disk, which has two watermarks, or its backlog is full."""

from __future__ import annotations

import pytest

from eventbridge.model.storage import StoreQuota
from eventbridge.policy.capacity import BusLoad, Watermarks, refusal

LINES = Watermarks(low=100, high=200)


@pytest.mark.parametrize(
    ("free", "backlog", "most", "refused"),
    [
        (100, 0, None, False),
        (99, 0, None, True),
        (None, None, 10, False),
        (None, 10, 10, False),
        (None, 11, 10, True),
        (1000, 10**9, None, False),
    ],
)
def test_a_bus_is_full_below_its_watermark_or_beyond_its_backlog(
    free: int | None, backlog: int | None, most: int | None, refused: bool
) -> None:
    """A bus is full under its watermark or above its backlog limit; unknown sizes and missing limits reject nothing."""
    assert (refusal(BusLoad(free, backlog), LINES, most, None) is not None) == refused


def test_a_disk_that_was_full_takes_events_from_the_high_line_on() -> None:
    """A bus that was full accepts events again from the high watermark on; between the watermarks nothing changes."""
    full = refusal(BusLoad(50, None), LINES, None, None)

    assert refusal(BusLoad(150, None), LINES, None, full) is not None
    assert refusal(BusLoad(150, None), LINES, None, None) is None
    assert refusal(BusLoad(200, None), LINES, None, full) is None


def test_a_backlog_says_nothing_of_the_disk() -> None:
    """After a rejection because of the backlog, the low watermark of the disk still applies."""
    behind = refusal(BusLoad(150, 11), LINES, 10, None)

    assert behind is not None
    assert refusal(BusLoad(150, 0), LINES, 10, behind) is None


def test_a_store_at_its_quota_is_a_full_bus() -> None:
    """A bus is full while its owner's store is at its quota, until the store is as small as the quota's resume size."""
    full = refusal(BusLoad(None, None, StoreQuota(100, 100, 90, None)), LINES, None, None)

    assert full is not None
    assert (
        full.reason == "the store holds 100 bytes, its quota is 100; events are accepted again once it holds 90 or less"
    )
    assert refusal(BusLoad(None, None, StoreQuota(91, 100, 90, None)), LINES, None, full) is not None
    assert refusal(BusLoad(None, None, StoreQuota(90, 100, 90, None)), LINES, None, full) is None
    assert refusal(BusLoad(None, None, StoreQuota(99, 100, 90, None)), LINES, None, None) is None
