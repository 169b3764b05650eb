"""Routes the budgeted rules of a batch, and defers the rules that are routed later.

Events beyond a rule's budget become a deferred match, which is routed later. Route calls this module once a batch's
slices are routed. The candidate events of a rule are its share of the batch. A rule with waiting deferred matches
is behind. The next shares of such a rule are deferred without a try, so that the rule delays the others by its budget
only once, and its deferred matches are routed oldest first. All rules together have a total budget; see
`share_budget.TotalBudget`.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import RoutedShare, RoutedSlice
from eventbridge.model.partition import Span
from eventbridge.model.pending import DeferredMatch
from eventbridge.pipeline.route.tries import ALL_SHARES, Canary, result_file, try_alone, try_together
from eventbridge.policy.ordering import POSITION_COLUMNS, position_of, spans_of
from eventbridge.routing.job import RouteJob, Router, RuleShare, SliceResult
from eventbridge.routing.share_budget import CROWDED, ROUTE_FAILED, TotalBudget, deferred, shuffle_shares
from eventbridge.rules import Rule, RuleSet
from eventbridge.runtime.quotas import full_owners
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows

log = logging.getLogger(__name__)

#: The reasons for deferring a share, in this order: the rule has older deferred matches; its pending deliveries are at
#: their maximum; it is on hold; a streaming task, which has no Spark, found the matches; the run that should have
#: routed it died. `share_budget` has the other reasons: BUDGET, ROUTE_FAILED and CROWDED.
BEHIND = "behind"
PENDING_MAX = "pending_max"
ON_HOLD = "on_hold"
STREAMING = "streaming"
ABANDONED = "abandoned"
_HOLDING = (ON_HOLD, ROUTE_FAILED)

#: The maximum number of seconds that a deferred match waits after tries without progress. The wait doubles with each
#: try: 2, 4, 8 ...
_LONGEST_WAIT_SECONDS = 512

Files = tuple[tuple[str, str], ...]


def route_budgeted_rules(
    runtime: Runtime, batch: Batch, job: RouteJob, router: Router, *, defers: bool = False
) -> bool:
    """Route or defer each unrecorded share of a batch; return False if the batch is no longer `buffered`.

    If `defers`, every share is deferred. Raises SparkError if Spark is at fault.
    """
    recorded = {file.key for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")}
    wanted = {f"rule/{rule}": (rule, files) for rule, files in candidate_events(runtime, batch).items()}
    missing = [(key, rule, files) for key, (rule, files) in wanted.items() if key not in recorded]
    if not missing:
        return True
    shares = []
    later = _reasons_to_wait(runtime, batch)
    if defers:
        later = dict.fromkeys((rule for _, rule, _ in missing), STREAMING) | later
    for key, rule, files in missing:
        share = _share(runtime, batch, key, rule, files)
        reason = later.get(rule)
        if reason is None:
            shares.append(share)
        elif not _record(runtime, result_file(batch.batch_id, deferred(share, reason))):
            return False
    return not shares or _route(runtime, job, router, shuffle_shares(batch.batch_id, shares))


def candidate_events(runtime: Runtime, batch: Batch) -> dict[str, Files]:
    """Return the shares of a batch: by rule, the events to route, as rows of buffer files.

    For a batch that took deferred matches, these are the events of the matches. For any other batch, they are the
    events that matched the patterns, as route recorded them.
    """
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    if batch.kind != "retry":
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
            if isinstance(file.detail, RoutedSlice):
                for rule, rows in file.detail.candidate_events.items():
                    found[rule][file.detail.file] += rowset.decode(rows)
    else:
        taken = runtime.ledger.deferred_matches.list_taken_by(batch.batch_id)
        for each in sorted(
            taken, key=lambda deferred_match: (deferred_match.made_at, deferred_match.deferred_match_id)
        ):
            for path, rows in each.files:
                found[each.rule][path] += rowset.decode(rows)
    return {
        rule: tuple((path, rowset.encode(sorted(rows))) for path, rows in files.items())
        for rule, files in found.items()
    }


def deferred_matches(runtime: Runtime, batch: Batch, files: Sequence[BatchFile]) -> list[DeferredMatch]:
    """Return the deferred matches that follow from a batch's recorded shares, to be published with its chunks."""
    rules = runtime.rules_of(batch).rules
    taken = runtime.ledger.deferred_matches.list_taken_by(batch.batch_id)
    now = runtime.ledger.now()
    made = []
    # Shares that were not tried come first, because they did not fail and matches of the same age are routed in this
    # order.
    shares = [file.detail for file in files if isinstance(file.detail, RoutedShare) and file.detail.left]
    for share in sorted(shares, key=lambda each: each.reason != CROWDED):
        age = max(target.retry.maximum_event_age_seconds for target in rules[share.rule].targets.values())
        tries = _tries(share, taken)
        wait = min(_LONGEST_WAIT_SECONDS, 2**tries) if tries else 0
        made.append(
            DeferredMatch(
                batch_id=batch.batch_id,
                runner=batch.runner,
                rule=share.rule,
                reason=share.reason,
                files=share.left,
                count=sum(rowset.count(rows) for _, rows in share.left),
                due_at=now + timedelta(seconds=wait),
                made_at=min((each.made_at for each in taken), default=now),
                expires_at=max((each.expires_at for each in taken if each.expires_at), default=_later(now, age)),
                state="on_hold" if share.reason in _HOLDING else "scheduled",
                tries=tries,
                on_hold_seconds=max((each.on_hold_seconds for each in taken), default=0.0),
                order_spans=_spans(runtime, rules[share.rule], share.left),
            )
        )
    return made


def _spans(runtime: Runtime, rule: Rule, files: Files) -> tuple[Span, ...]:
    """Return the spans of a rule's events if it has an ordered target, else (). They are read here once instead of by
    each push."""
    if not any(target.ordered for target in rule.targets.values()):
        return ()
    positions = []
    for file, rows in files:
        if numbers := list(rowset.decode(rows)):  # a buffer file holds one partition in its order
            ends = rowset.encode(sorted({numbers[0], numbers[-1]}))
            positions += [
                position_of(row) for row in read_rows(runtime.store, file, ends, POSITION_COLUMNS).to_pylist()
            ]
    return spans_of(positions)


def full_rules(runtime: Runtime, rules: RuleSet) -> set[str]:
    """Return the rules whose pending deliveries are at the rule's or its owner's maximum, so that new matches are
    deferred."""
    full = {
        name
        for name, waiting in runtime.ledger.pending.counts_by_rule().items()
        if name in rules.rules and waiting >= rules.rules[name].pending_max
    }
    owners = full_owners(runtime, rules)
    return full | {name for name, rule in rules.rules.items() if owners and rules.owner_of(rule) in owners}


def rules_routed_later(runtime: Runtime, batch: Batch) -> tuple[str, ...]:
    """Return the rules whose share of a new batch is deferred, because they are behind or at their maximum of pending
    deliveries.

    For any other batch, there are none.
    """
    if batch.kind != "normal":
        return ()
    rules = runtime.rules_of(batch)
    return tuple(sorted(full_rules(runtime, rules) | _rules_behind(runtime, rules)))


def defer_again(runtime: Runtime, batch: Batch) -> None:
    """Publish a batch whose run died before it was routed.

    Its unrouted shares are deferred again, and nothing is pushed.
    """
    recorded = {file.key for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")}
    for rule, files in candidate_events(runtime, batch).items():
        share = RuleShare(f"rule/{rule}", rule, files, 0.0)
        if share.slice_id not in recorded:
            _record(runtime, result_file(batch.batch_id, deferred(share, ABANDONED)))
    routed = runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")
    runtime.ledger.chunks.publish(batch.batch_id, runtime.ledger.now(), [], deferred_matches(runtime, batch, routed))


def _later(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=seconds)


def _tries(share: RoutedShare, taken: Iterable[DeferredMatch]) -> int:
    """Return how many consecutive batches, including this one, took a rule's deferred matches without progress."""
    before = [each.tries for each in taken]
    return max(before) + 1 if before and share.rendered == 0 else 0


def _share(runtime: Runtime, batch: Batch, key: str, rule: str, files: Files) -> RuleShare:
    settings = runtime.settings
    if batch.kind != "retry":
        return RuleShare(key, rule, files, settings.route_rule_cpu_budget)
    taken = runtime.ledger.deferred_matches.list_taken_by(batch.batch_id)
    give_up = None
    if all(each.state == "on_hold" for each in taken):
        give_up = ("rule_removed", f"no rule file defines {rule} any more")
    elif all(each.expires_at is not None and each.expires_at <= runtime.ledger.now() for each in taken):
        give_up = ("maximum_event_age", "it was not routed before its maximum age")
    return RuleShare(key, rule, files, settings.route_deferred_cpu_budget, last_resort=True, give_up=give_up)


def _reasons_to_wait(runtime: Runtime, batch: Batch) -> dict[str, str]:
    """Return, by rule, the reason for deferring its share without a try; the shares of other rules are routed now."""
    if batch.kind == "retry":
        return {}
    rules = runtime.rules_of(batch)
    on_hold = {
        name: ON_HOLD
        for name, each in runtime.ledger.rules.list_on_hold().items()
        if name in rules.rules and each.version == rules.rules[name].version
    }
    behind = dict.fromkeys(_rules_behind(runtime, rules), BEHIND)
    return behind | dict.fromkeys(full_rules(runtime, rules), PENDING_MAX) | on_hold


def _rules_behind(runtime: Runtime, rules: RuleSet) -> set[str]:
    """Return the rules whose new shares must wait until their deferred matches, from any runner, are routed.

    These are budgeted rules, so that their backlog delays other rules by one budget only once, and ordered rules. The
    events of any other rule are routed in addition to its backlog, which may shrink more slowly than new events arrive.
    """
    waiting = {each.rule for each in runtime.ledger.deferred_matches.waiting() if each.rule in rules.rules}
    return {name for name in waiting if rules.rules[name].is_budgeted or _is_ordered(rules.rules[name])}


def _is_ordered(rule: Rule) -> bool:
    return any(target.ordered for target in rule.targets.values())


def _route(runtime: Runtime, job: RouteJob, router: Router, shares: Sequence[RuleShare]) -> bool:
    """Route shares as one job or, if that fails, one at a time; put a rule on hold if its share fails alone.

    If shares are routed one at a time, their total budget also applies; the time of failed shares does not count.
    """
    tries = runtime.ledger.route_tries.counts(job.batch_id)
    left = {share.slice_id: share for share in shares}
    canary = Canary(runtime.store, job, router)
    together = [share for share in shares if share.slice_id not in tries]

    def record(result: SliceResult) -> bool:
        return _record_result(runtime, job, left.pop(result.slice_id), result)

    if len(together) > 1:
        if try_together(runtime, job.another_try(), router, canary, ALL_SHARES, together, record) is False:
            return False
    elif len(shares) > 1:
        canary.require()  # a single share needs no canary, because its own tries show whether Spark works
    total = TotalBudget()
    for share in left.values():
        if total.is_over(job):
            result: SliceResult | str = deferred(share, CROWDED)
        else:
            began = time.monotonic()
            result = try_alone(runtime, job, router, canary, share, _tries_before(runtime, job.batch_id, share))
            total.charge(job, time.monotonic() - began if isinstance(result, SliceResult) else 0.0)
        if isinstance(result, str):
            result = deferred(share, ROUTE_FAILED, result)
        if not _record_result(runtime, job, share, result):
            return False
    return True


def _tries_before(runtime: Runtime, batch_id: str, share: RuleShare) -> int:
    """Return how many tries of this share were counted in earlier batches whose run died; each may have crashed the
    process."""
    abandoned = [each for each in runtime.ledger.deferred_matches.list_taken_by(batch_id) if each.reason == ABANDONED]
    return max(
        (runtime.ledger.route_tries.counts(each.batch_id).get(share.slice_id, 0) for each in abandoned), default=0
    )


def _record_result(runtime: Runtime, job: RouteJob, share: RuleShare, result: SliceResult) -> bool:
    if isinstance(result.detail, RoutedShare) and result.detail.error:
        _hold(runtime, job, share, result.detail.error)
    return _record(runtime, result_file(job.batch_id, result))


def _hold(runtime: Runtime, job: RouteJob, share: RuleShare, error: str) -> None:
    version = runtime.rules_of(runtime.ledger.batches.get(job.batch_id)).rules[share.rule].version
    remedy = "its file changes or an operator runs `eventbridge rules release`"
    log.error("ALARM the rule %s cannot be routed and is on hold until %s: %s", share.rule, remedy, error)
    runtime.ledger.rules.hold(share.rule, version, error)


def _record(runtime: Runtime, file: BatchFile) -> bool:
    recorded = runtime.ledger.files.record(file, while_state="buffered")
    return recorded or runtime.ledger.batches.get(file.batch_id).state == "buffered"
