"""Decides who may send to a degraded target: no push, one push that probes it, or every push again."""

from __future__ import annotations

from datetime import datetime

from eventbridge.model.batch import Batch
from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.breaker import Admission, admits
from eventbridge.runtime.runtime import Runtime


def admission(runtime: Runtime, batch: Batch, status: TargetStatus | None, until: datetime) -> Admission:
    """Return what a push may send to a target until its budget ends at `until`.

    New deliveries are never probes: they wait in the slow lane. If several pushes could probe, one of them does.
    """
    found = admits(status, runtime.ledger.now())
    if found in ("all", "none") or status is None:
        return found
    if batch.kind == "normal":
        return "none"
    if found == "apart":
        return "all"
    return "probes" if runtime.ledger.claim_probe(status.rule, status.target, until) else "none"


def must_halt(status: TargetStatus, *, follows_others: bool, now: datetime) -> bool:
    """Return whether a running push must stop sending to a target with this status.

    A push that probes finds out by itself, and an ordered target has no breaker: these stop only if the target is
    disabled.
    """
    if not follows_others:
        return status.state == "disabled"
    return admits(status, now) in ("none", "probes")


def must_wind_down(status: TargetStatus, batch: Batch, now: datetime) -> bool:
    """Return whether a running push must start no more requests to a target that another push found to be slow."""
    return batch.kind == "normal" and admits(status, now) == "apart"
