"""Waiting targets are served in turn, and share the room fairly."""

from __future__ import annotations

import pytest

from eventbridge.policy.batch_size import fair_shares


@pytest.mark.parametrize(
    ("room", "wants", "shares"),
    [
        (10, [], []),
        (0, [3, 3], [0, 0]),
        (10, [3, 3], [3, 3]),
        (10, [20], [10]),
        (10, [20, 20], [5, 5]),
        (11, [20, 20], [6, 5]),
        (10, [1, 20, 3], [1, 6, 3]),
        (2, [9, 9, 9], [1, 1, 0]),
        (5, [0, 9, -1], [0, 5, 0]),
    ],
)
def test_room_is_shared_fairly(room: int, wants: list[int], shares: list[int]) -> None:
    """No target gets more than it needs, and the others share the rest."""
    assert fair_shares(room, wants) == shares
