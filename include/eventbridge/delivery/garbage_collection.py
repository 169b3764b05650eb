"""Makes Python search for reference cycles less often while many objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: The number of objects that may be created between two collections of the youngest generation. With the default, 700,
#: a push to thousands of targets spends a third of its CPU time on collections.
_THRESHOLD = 20_000


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Raise the threshold of the youngest generation in the block, unless collection is off or the threshold is
    higher."""
    before = gc.get_threshold()
    if not 0 < before[0] < _THRESHOLD:
        yield
        return
    gc.set_threshold(_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """In the block, collect reference cycles only on `gc.collect()`, and never among objects that existed before the
    block."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
