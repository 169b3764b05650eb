"""How our functions are compiled, and when what was compiled before may be used again.

Numba keeps compiled functions on disk beside their source, and takes one from there if that one file is unchanged.
But a function holds those it calls: one from an unchanged file could run with what it called before an upgrade. So
what is kept is stamped with all our sources that hold compiled functions: whichever changes, all are compiled again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGES: Final = ("scan", "match/kernel", "transform/kernel")


def compiled(function: Function) -> Function:
    """Return the function compiled: kept on disk, without the GIL, without a check for division by zero."""
    return _compile(function)


def inlined(function: Function) -> Function:
    """Return a small function compiled into its callers: in the innermost loops a call costs more than it does."""
    return _compile(function, forceinline=True)


def _compile(function: Function, **options: Any) -> Function:
    dispatcher: Any = njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    dispatcher._cache._cache_file._source_stamp = sources_stamp()  # Numba has no public place for it
    return cast(Function, dispatcher)


@cache
def sources_stamp() -> str:
    """Return a hash of all sources that hold compiled functions."""
    root = Path(__file__).parent.parent
    digest = hashlib.blake2b(digest_size=16)
    for package in _PACKAGES:
        for file in sorted((root / package).glob("*.py")):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
