"""How often Python looks for cycles while a push runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from eventbridge.delivery.garbage_collection import no_garbage_collection, rare_garbage_collection


@pytest.fixture(autouse=True)
def threshold() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_the_threshold_is_raised_for_the_block_only() -> None:
    """Also where the block raises."""
    gc.set_threshold(700, 11, 12)
    inside = ()

    @rare_garbage_collection()
    def fails() -> None:
        nonlocal inside
        inside = gc.get_threshold()
        raise KeyError

    with pytest.raises(KeyError):
        fails()

    assert inside == (20_000, 11, 12)
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("chosen", [0, 50_000], ids=["off", "higher"])
def test_the_collector_settings_of_the_host_process_stay(chosen: int) -> None:
    """A process that looks less often, or never, continues so."""
    gc.set_threshold(chosen, 10, 10)
    with rare_garbage_collection():
        assert gc.get_threshold()[0] == chosen


def test_nothing_is_collected_unless_it_is_asked_for() -> None:
    """A streaming task looks for cycles between two batches, and never among what its process began with."""
    with no_garbage_collection():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0

    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
