"""Turns of budgeted rules: in which order a batch begins with their shares, until when, and what of one without a turn.

Each rule has its budget, and all that one worker routes of a batch have a total, or a batch would wait for as many
budgets as there are rules that loop. A total for each worker, since workers cannot tell what the others have spent, and
since they work side by side: it is what a batch waits. One that begins before it is spent keeps its whole budget.

Nothing here may import the ledger or Spark: a Spark worker imports this module and should be ready soon.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from eventbridge.model.routed import RoutedShare
from eventbridge.routing.job import RouteJob, RuleShare, SliceResult

#: Why a share is left: the total of its batch's budgeted rules was spent before its turn.
CROWDED = "Crowded"


class TotalBudget:
    """Counts what a process spends on shares, job by job: of the last one, as one is routed at a time."""

    def __init__(self) -> None:
        self._attempt = ""
        self._seconds = 0.0

    def is_over(self, job: RouteJob) -> bool:
        """Say whether no further share of a job may begin; never before the first."""
        return job.attempt == self._attempt and 0 < job.budgeted_seconds <= self._seconds

    def charge(self, job: RouteJob, seconds: float) -> None:
        """Count what a share of a job took."""
        if job.attempt != self._attempt:
            self._attempt, self._seconds = job.attempt, 0.0
        self._seconds += seconds


def by_lot(batch_id: str, shares: Iterable[RuleShare]) -> list[RuleShare]:
    """Return the shares in the order of their turns: drawn again for every batch, the same at every try of it."""
    return sorted(shares, key=lambda share: blake2b(f"{batch_id} {share.rule}".encode()).digest())


def deferred(share: RuleShare, reason: str, error: str = "") -> SliceResult:
    """Return the result of a share of which nothing was routed: all of it becomes a deferred match."""
    return SliceResult(
        share.slice_id, None, 0, RoutedShare(rule=share.rule, left=share.files, reason=reason, error=error)
    )
