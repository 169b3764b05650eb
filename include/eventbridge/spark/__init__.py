"""Contains everything that uses PySpark. No other package imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventbridge.spark.event_tables import tables
    from eventbridge.spark.matching import match_frame

__all__ = ["match_frame", "tables"]


def __getattr__(name: str) -> Any:
    # Importing Numba takes 0.6 s, and most users of a session never match events themselves.
    if name == "match_frame":
        from eventbridge.spark.matching import match_frame

        return match_frame
    if name == "tables":
        from eventbridge.spark.event_tables import tables

        return tables
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
