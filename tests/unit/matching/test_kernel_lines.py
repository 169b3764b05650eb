"""Ranges on a line are found by stabbing, against trying each."""

from __future__ import annotations

import random

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.lines import segments, stab


def test_stabbing_finds_the_ranges_that_hold_an_interval() -> None:
    """Random ranges on lines of one point and more, empty ones too: each range once."""
    for seed in range(150):
        random_ = random.Random(seed)
        points = random_.randint(1, 40)
        intervals = 2 * points + 1
        ranges = [(random_.randrange(intervals), random_.randrange(intervals)) for _ in range(random_.randint(0, 30))]
        firsts, atoms = segments(
            intervals, [low for low, _ in ranges], [high for _, high in ranges], list(range(len(ranges)))
        )
        tables = t.Tables()
        tables.put(t.LINE_POINTS_FIRST, np.array([0, points], np.int32))
        tables.put(t.LINE_SEGMENTS_FIRST, np.zeros(2, np.int32))
        tables.put(t.SEGMENT_ATOMS_FIRST, np.array([*firsts, len(atoms)], np.int32))
        tables.put(t.SEGMENT_ATOMS, np.array([*atoms, 0], np.int32))
        found = np.empty(len(ranges) + 1, np.int32)
        for interval in range(intervals):
            count = stab(tables.address, 0, interval, found.ctypes.data, 0)

            assert sorted(found[:count]) == [atom for atom, (low, high) in enumerate(ranges) if low <= interval <= high]
