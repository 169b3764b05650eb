"""Objects that a server excludes from Python's garbage collection."""

from __future__ import annotations

import gc

from eventbridge.api.serve import long_lived_set_aside


def test_survivors_of_a_long_collection_are_excluded() -> None:
    """During the block; a collection of young objects excludes nothing."""
    with long_lived_set_aside(0.0):
        gc.collect(1)
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert gc.get_freeze_count() > 10_000

    assert gc.get_freeze_count() == 0


def test_a_short_collection_excludes_nothing() -> None:
    """Excluded objects that form cycles would never be freed."""
    with long_lived_set_aside(60.0):
        gc.collect()
        assert gc.get_freeze_count() == 0
