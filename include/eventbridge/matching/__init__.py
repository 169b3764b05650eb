"""Decides which patterns an event matches: `reference` defines the results, and `kernel` is the fast implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventbridge.matching.kernel.matcher import Matcher, Matches, compile_rules

__all__ = ["Matcher", "Matches", "compile_rules"]


def __getattr__(name: str) -> Any:
    # Numba costs 0.6 s to import, and the commands that only check rules never need it.
    if name in __all__:
        from eventbridge.matching.kernel import matcher

        return getattr(matcher, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
