"""Lets Python look for reference cycles less often while many objects are made that live long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Objects made between two looks of the youngest generation; 700 by default, which costs a push of thousands of
#: targets a third of its CPU time.
_OBJECTS = 20_000


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Raise the threshold of the youngest generation for the block, unless it is off or higher already."""
    before = gc.get_threshold()
    if not 0 < before[0] < _OBJECTS:
        yield
        return
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Look for reference cycles only when `gc.collect` is called, and never among what was there before the block."""
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
