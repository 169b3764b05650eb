"""Stage route: every landed event against every rule, once; what matched becomes delivery files and chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from eventbridge.stages.route_slice import RouteJob, Slice, SliceResult

__all__ = ["RouteJob", "Router", "Slice", "SliceResult"]


class Router(Protocol):
    """Where slices are routed: in this process or on Spark."""

    def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        """Route every slice and yield its result as it is finished, in any order.

        Raises SparkError where Spark cannot be reached or a slice fails; what was yielded before stays valid.
        """
