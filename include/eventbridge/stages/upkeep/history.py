"""Forgets old changes of rules with rule sets that nothing names, replays and redrives that ended, and actions."""

from __future__ import annotations

from eventbridge.stages.upkeep.retentions import Retentions
from eventbridge.stages.upkeep.run import Run
from eventbridge.store import layout


def prune_history(run: Run, retentions: Retentions) -> None:
    """Forget what ended before the retention of manifests; what a rule is today is never forgotten."""
    if run.dry_run or run.is_over():
        return
    ledger, before = run.runtime.ledger, run.now - retentions.of_history
    run.done.rule_changes, rule_sets = ledger.drop_rule_changes(before)
    run.remove([layout.rule_set(each) for each in sorted(rule_sets) if not ledger.rule_set_is_named(each)])
    ledger.drop_actions(before)
    run.done.requests = ledger.drop_ended_requests(before)
