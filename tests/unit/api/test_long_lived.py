"""What a server leaves out of Python's search for reference cycles."""

from __future__ import annotations

import gc

from eventbridge.api.long_lived import long_lived_set_aside


def test_what_a_long_search_found_alive_is_left_out_of_the_next() -> None:
    """For the block, and a search of the young alone sets nothing aside."""
    with long_lived_set_aside(0.0):
        gc.collect(1)
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert gc.get_freeze_count() > 10_000

    assert gc.get_freeze_count() == 0


def test_a_short_search_sets_nothing_aside() -> None:
    """What dies in cycles after it would stay for as long as the server lives."""
    with long_lived_set_aside(60.0):
        gc.collect()
        assert gc.get_freeze_count() == 0
