"""Compiles functions with Numba, and caches the compiled code on disk.

Numba stores compiled functions on disk beside their source, and reuses one if its source file is unchanged. But a
compiled function contains those that it calls: one from an unchanged file could contain a callee from before an
upgrade. So the stamp here covers all sources with compiled functions: if one of them changes, all functions are
compiled again.

Numba reads only the first folder that this user may write to. Another user may have installed the package and compiled
its functions, so the code beside the sources is read too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numba import njit
from numba.core import caching

from eventbridge.errors import InfrastructureError
from eventbridge.matching.scan.progress import PROGRESS

Function = TypeVar("Function", bound=Callable[..., Any])

#: The exceptions that reading an index raises if it names a removed class or module; Numba compares stamps only
#: afterwards.
_STALE_INDEX_ERRORS: Final = (AttributeError, ImportError)

_PACKAGES: Final = ("matching/scan", "matching/kernel", "transform/kernel")


def compiled(function: Function) -> Function:
    """Return a function compiled with Numba, cached on disk, without the GIL or checks for division by zero."""
    return _compile(function)


def inlined(function: Function) -> Function:
    """Return a small function that is compiled into its callers, as in innermost loops a call would cost more."""
    return _compile(function, forceinline=True)


def _compile(function: Function, **options: Any) -> Function:
    try:
        dispatcher: Any = njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    except RuntimeError as error:  # Numba reports "no locator available"
        raise InfrastructureError(
            "Compiled code can be kept neither beside the package's sources nor in this user's cache folder: "
            "set NUMBA_CACHE_DIR to a folder that this user can write to."
        ) from error
    # Numba has no public interface for the stamp or for the cache's files.
    own = dispatcher._cache._cache_file
    own._source_stamp = sources_stamp()
    dispatcher._cache._cache_file = _CodeCache(
        own, function.__code__.co_filename, dispatcher._cache._impl.filename_base
    )
    PROGRESS.functions += 1
    return cast(Function, dispatcher)


class _CodeCache:
    """The compiled code of one function on disk: in this user's folder or, if that has none, beside the sources."""

    def __init__(self, own: Any, source: str, name: str) -> None:
        files: Any = caching.IndexDataCacheFile
        self._own = own
        self._installed = files(str(Path(source).parent / "__pycache__"), name, sources_stamp())
        self._name = f"{source}:{name}"
        self.flush = own.flush

    def save(self, key: object, data: object) -> None:
        """Store the code that was compiled for a signature and a processor."""
        try:
            self._own.save(key, data)
        except _STALE_INDEX_ERRORS:
            self._own.flush()
            self._own.save(key, data)
        PROGRESS.compiled.add(self._name)

    def load(self, key: object) -> Any:
        """Return the stored code for a signature and a processor, or None if there is none."""
        kept = None
        with suppress(*_STALE_INDEX_ERRORS):
            kept = self._own.load(key)
        if kept is None:
            with suppress(OSError, *_STALE_INDEX_ERRORS):  # OSError: a folder that only its owner may read
                kept = self._installed.load(key)
        return kept


@cache
def sources_stamp() -> str:
    """Return a hash of all source files with compiled functions."""
    root = Path(__file__).parents[2]
    digest = hashlib.blake2b(digest_size=16)
    for package in _PACKAGES:
        for file in sorted((root / package).glob("*.py")):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
