"""Turns of costly rules: in which order a batch begins with their shares, until when, and what of one without a turn.

Each rule has its budget, and all together have a time, or a batch would wait for as many budgets as there are rules
that loop. It is time on the clock, since that is what others wait, and since workers that route shares side by side
cannot tell how much CPU time is left for all. Who begins in time keeps its whole budget.

Nothing here may import the ledger or Spark: a Spark worker imports this module and should be ready soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TypeVar

from eventbridge.stages.route_job import RouteJob, RuleShare, SliceResult, Task

#: Why a share is left: the time of its batch's costly rules was over before its turn.
CROWDED = "Crowded"

AnyTask = TypeVar("AnyTask", bound=Task)


def by_lot(batch_id: str, shares: Iterable[RuleShare]) -> list[RuleShare]:
    """Return the shares in the order of their turns: drawn anew for every batch, the same at every try of it."""
    return sorted(shares, key=lambda share: blake2b(f"{batch_id} {share.rule}".encode()).digest())


def timed(job: RouteJob, tasks: Sequence[AnyTask], now: float) -> list[AnyTask]:
    """Return the tasks, shares with the time by which they must begin; `now` is when the first of them can.

    In seconds since 1970: clocks of Spark's machines must agree, as those of any cluster do, within a second or so.
    """
    if not job.costly_seconds:
        return list(tasks)
    begin_by = now + job.costly_seconds
    return [replace(task, begin_by=begin_by) if isinstance(task, RuleShare) else task for task in tasks]


def is_late(share: RuleShare, now: float) -> bool:
    """Say whether a share must not begin any more."""
    return share.begin_by is not None and now > share.begin_by


def referred(share: RuleShare, reason: str, error: str = "") -> SliceResult:
    """Return the result of a share of which nothing was routed: all of it becomes a reference."""
    said = {
        "rule": share.rule,
        "done": [],
        "left": [list(each) for each in share.files],
        "reason": reason,
        "rendered": 0,
    }
    detail = {"rows_in": 0, "matched": {}, "failed": {}, "failed_rows": "", "pieces": [], "share": said}
    return SliceResult(share.slice_id, None, 0, detail | ({"error": error} if error else {}))
