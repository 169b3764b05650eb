"""Plans the batches that route deferred matches.

Each batch takes those of one rule, oldest first. The DAG `eventbridge_retry_deliveries` and `eventbridge deliver` call
this module. Route and the later stages then run as for any other batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.model.pending import DeferredMatch
from eventbridge.pipeline.retry.plan import REMOVED_RULE_GRACE, plan_retries
from eventbridge.pipeline.route.budgeted_rules import full_rules
from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.hold_reason import deferred_match_hold_reason
from eventbridge.rules import RuleSet
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.rule_sets import freeze_rules

#: The maximum number of events in a batch that takes several deferred matches. A single deferred match is taken whole,
#: whatever its size. The higher maximum applies to rules that are not budgeted; a budgeted rule takes a millisecond or
#: more per event.
_MAX_EVENTS = 5_000
_MAX_CHEAP_EVENTS = 20_000
#: The time that a rule at its limit of pending deliveries waits before it is checked again.
_FULL_FOR = timedelta(seconds=15)


@instrumented("plan_deferred_matches", of="runner")
def plan_deferred_matches(
    runtime: Runtime, runner: str | None = None, pools: Mapping[str, PoolSlots] | None = None
) -> str | None:
    """Take the deferred matches of the rule that has waited longest into a new batch that begins at route.

    Returns the batch's id, or None if no match is due. Deferred matches of a rule that the current rule files disable,
    or that is on hold, wait without ageing. Those of a removed rule wait for 1 h and are then dead-lettered under the
    removed rule. A rule has at most one batch of deferred matches at a time.
    """
    rules = runtime.rule_set()
    waiting = runtime.ledger.deferred_matches.waiting(runner)
    if not waiting:
        return None
    _update_holds(runtime, rules, waiting, pools or {})
    now = runtime.ledger.now()
    full = full_rules(runtime, rules) & {each.rule for each in waiting}
    for rule in full:
        runtime.ledger.deferred_matches.defer(rule, now + _FULL_FOR)
    for share in _due(runtime, rules, _drop_full(runtime.ledger.deferred_matches.waiting(runner), full, now), now):
        first = share[0]
        of = runtime.ledger.batches.get(first.batch_id)
        batch = Batch(
            batch_id=new_batch_id(now),
            kind="retry",
            runner=first.runner,
            bus=of.bus,
            state="buffered",
            # a replay has its own rule set, which may have only one target
            rule_set=of.rule_set
            if of.replay_id or first.rule not in rules.rules
            else freeze_rules(runtime.store, rules),
            planned_at=now,
            # the deadline for routing, some time after which the batch counts as stale
            deadline_at=now + timedelta(seconds=runtime.settings.prepare_timeout),
            replay_id=of.replay_id,
        )
        if runtime.ledger.deferred_matches.take(batch, [each.deferred_match_id or 0 for each in share]):
            return batch.batch_id
    return None


def plan_due(runtime: Runtime, runner: str | None = None, pools: Mapping[str, PoolSlots] | None = None) -> str | None:
    """Plan one batch of pending deliveries or of deferred matches; return its id, or None if nothing can be taken.

    The kind that has waited longer is tried first.
    """
    pending = min(
        (each.first_due_at for each in runtime.ledger.due.targets(runtime.ledger.now(), runner)), default=None
    )
    deferred_match = due_deferred_matches(runtime, runner)
    if deferred_match is None or (pending is not None and pending < deferred_match):
        return plan_retries(runtime, runner, pools).batch_id or plan_deferred_matches(runtime, runner, pools)
    return plan_deferred_matches(runtime, runner, pools) or plan_retries(runtime, runner, pools).batch_id


def due_deferred_matches(runtime: Runtime, runner: str | None = None) -> datetime | None:
    """Return when the next deferred match that no batch has taken is due; None if none is scheduled."""
    waiting = runtime.ledger.deferred_matches.waiting(runner)
    return min((each.due_at for each in waiting if each.state == "scheduled" and each.taken_by is None), default=None)


def _update_holds(
    runtime: Runtime, rules: RuleSet, waiting: Sequence[DeferredMatch], pools: Mapping[str, PoolSlots]
) -> None:
    rules_on_hold, overrides = runtime.ledger.rules.list_on_hold(), runtime.ledger.overrides.get_effective()
    for rule in {each.rule for each in waiting}:
        states = {each.state for each in waiting if each.rule == rule and each.taken_by is None}
        reason = deferred_match_hold_reason(rules, rules_on_hold, pools, overrides, rule)
        if reason and "scheduled" in states:
            runtime.ledger.deferred_matches.hold(rule)
        elif not reason and "on_hold" in states:
            runtime.ledger.deferred_matches.release(rule)


def _drop_full(waiting: Sequence[DeferredMatch], full: Collection[str], now: datetime) -> list[DeferredMatch]:
    """Omit the deferred matches of full rules, except those that a batch has taken and those that are due, because they
    are past their maximum age and cannot be deferred."""
    return [each for each in waiting if each.rule not in full or each.taken_by is not None or each.due_at <= now]


def _due(
    runtime: Runtime, rules: RuleSet, waiting: Sequence[DeferredMatch], now: datetime
) -> Iterator[list[DeferredMatch]]:
    """Yield, for each rule, the deferred matches that one batch may take; the rule that has waited longest comes
    first."""
    busy = {each.rule for each in waiting if each.taken_by is not None}
    gone_before = now - REMOVED_RULE_GRACE
    seen = set()
    for each in waiting:
        if each.rule in busy or each.rule in seen:
            continue
        removed = each.rule not in rules.rules
        state = "on_hold" if removed else "scheduled"
        limit = gone_before if removed else now
        seen.add(each.rule)
        ready = [other for other in waiting if other.rule == each.rule and other.state == state]
        if ready and ready[0].due_at <= limit:
            yield _first(runtime, ready, removed=removed, limit=_max_events(runtime, rules, each.rule))


def _max_events(runtime: Runtime, rules: RuleSet, name: str) -> int:
    is_cheap = name in rules.rules and not rules.rules[name].is_budgeted
    return min(runtime.settings.retry_max_per_target, _MAX_CHEAP_EVENTS if is_cheap else _MAX_EVENTS)


def _first(runtime: Runtime, ready: Sequence[DeferredMatch], *, removed: bool, limit: int) -> list[DeferredMatch]:
    """Return the oldest deferred matches with the same bus, runner and replay that fit one batch; the oldest one always
    fits."""
    taken: list[DeferredMatch] = []
    count = 0
    for each in ready:
        count += each.count
        one, other = runtime.ledger.batches.get(ready[0].batch_id), runtime.ledger.batches.get(each.batch_id)
        alike = one.replay_id == other.replay_id and one.bus == other.bus and ready[0].runner == each.runner
        if removed or one.replay_id:
            alike = alike and one.rule_set == other.rule_set
        if taken and (count > limit or not alike):
            break
        taken.append(each)
    return taken
