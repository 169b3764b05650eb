"""Removes old changes of rules, unused rule sets, ended replays and redrives, and actions from the ledger."""

from __future__ import annotations

from eventbridge.store import layout
from eventbridge.upkeep.retentions import Retentions
from eventbridge.upkeep.run import Run


def prune_history(run: Run, retentions: Retentions) -> None:
    """Remove records that ended before the retention of manifests; the current version of a rule is always kept."""
    if run.dry_run or run.is_over():
        return
    ledger, before = run.runtime.ledger, run.now - retentions.of_history
    run.done.rule_changes, rule_sets = ledger.drop_rule_changes(before)
    run.remove([layout.rule_set(each) for each in sorted(rule_sets) if not ledger.rule_set_is_named(each)])
    ledger.drop_actions(before)
    run.done.requests = ledger.drop_ended_requests(before)
