"""Turns of budgeted rules: the order of their shares in a batch, their total budget, and shares without a turn.

Each rule has its budget, and all that one worker routes of a batch have a total, or a batch would wait for as many
budgets as there are rules that loop. A total for each worker, since workers do not know what the others have spent, and
since they work side by side: it is what a batch waits. One that begins before it is spent keeps its whole budget.

This module must not import the ledger or Spark: Spark workers import it and must start fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from eventbridge.model.file_detail import RoutedShare
from eventbridge.routing.job import RouteJob, RuleShare, SliceResult

#: The reason for deferring a share: the batch's total for budgeted rules was spent before its turn.
CROWDED = "crowded"


class TotalBudget:
    """Counts the CPU time that a process spends on the shares of the current job."""

    def __init__(self) -> None:
        self._attempt = ""
        self._seconds = 0.0

    def is_over(self, job: RouteJob) -> bool:
        """Return whether no further share of a job may start; never true before the first."""
        return job.attempt == self._attempt and 0 < job.budgeted_seconds <= self._seconds

    def charge(self, job: RouteJob, seconds: float) -> None:
        """Add the CPU time of a share."""
        if job.attempt != self._attempt:
            self._attempt, self._seconds = job.attempt, 0.0
        self._seconds += seconds


def by_lot(batch_id: str, shares: Iterable[RuleShare]) -> list[RuleShare]:
    """Return the shares in random order: different for every batch, the same at every attempt of it."""
    return sorted(shares, key=lambda share: blake2b(f"{batch_id} {share.rule}".encode()).digest())


def deferred(share: RuleShare, reason: str, error: str = "") -> SliceResult:
    """Return the result of a share of which nothing was routed: all of it becomes a deferred match."""
    return SliceResult(
        share.slice_id, None, 0, RoutedShare(rule=share.rule, left=share.files, reason=reason, error=error)
    )
