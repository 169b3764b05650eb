"""Plans the batches of kind retry: what is parked and due, a chunk a target, into the slow lane.

Called by the DAG `retry_deliveries` and by `eventbridge deliver`; the other stages then run as for any batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from eventbridge import rowset
from eventbridge.breaker import GOOD_PROBES, admits
from eventbridge.errors import BooksError
from eventbridge.flow import POOL_CLOSED, SLOW_LANE_POOL, SLOW_LANE_WEIGHT, TARGET_DISABLED, PoolSlots, in_turn
from eventbridge.identity import new_batch_id
from eventbridge.ledger.records import Batch, BatchKind, Chunk, Parked, Piece, TargetStatus, WaitingTarget
from eventbridge.rate import second_of
from eventbridge.rule import RuleSet
from eventbridge.stages.commit import commit
from eventbridge.stages.costly_rules import refer_again
from eventbridge.stages.dead_letters import write_dead_letters
from eventbridge.stages.frozen_rules import freeze_rules
from eventbridge.stages.ledger_guard import refuse_lost_ledger
from eventbridge.stages.letter_copies import QUEUE_EXHAUSTED
from eventbridge.stages.operations import publish_operational_events
from eventbridge.stages.ordered_retries import is_ordered, keeps_waiting, let_go, ordered_due
from eventbridge.stages.schedule_retries import schedule_retries
from eventbridge.stages.workplace import Workplace

log = logging.getLogger(__name__)

RULE_DISABLED = "rule disabled"
RULE_REMOVED = "rule removed"
#: How long deliveries of a rule that no file names any more wait for it to come back.
REMOVED_RULE_GRACE = timedelta(hours=1)
#: A batch whose push tasks must have ended for this long is settled by whoever plans next.
_STALE_AFTER_SECONDS = 10.0
#: Kinds of batches whose runs always plan anew.
_KINDS: tuple[BatchKind, ...] = ("retry", "redrive")


@dataclass(frozen=True)
class RetryPlan:
    """The retry batch that was planned and its chunks; `batch_id` None = nothing is due."""

    batch_id: str | None = None
    chunk_ids: list[int] = field(default_factory=list)


def plan_retries(work: Workplace, runner: str | None = None, pools: Mapping[str, PoolSlots] | None = None) -> RetryPlan:
    """Take parked deliveries that are due, at most one chunk per target, into a new batch that is already routed.

    Targets take turns where more are due than a batch has chunks. Always plans anew; of two that take the same rows at
    once one gets nothing. Nothing of a target whose breaker is open; of one that may be probed a few deliveries.
    `runner` None = of all runners; `pools` None = not known, none is taken for closed. A delivery uses today's rule
    files: a disabled rule's are held, a removed rule's are held for 1 h, then given up, a chunk a batch.
    """
    refuse_lost_ledger(work)
    publish_operational_events(work)
    rules = work.rule_set()
    hold_and_release(work, rules, runner, pools or {})
    let_go(work, rules, runner)
    chunks = _chunks(work, rules, runner)
    if not chunks:
        return RetryPlan()
    now = work.clock()
    batch = Batch(
        batch_id=new_batch_id(now),
        kind="retry",
        runner=runner or "",
        bus="",
        state="routed",
        rule_set=freeze_rules(work.store, rules),
        planned_at=now,
        deadline_at=now + timedelta(seconds=work.settings.batch_deadline_seconds),
    )
    planned = [_chunk(batch.batch_id, number, rows) for number, rows in enumerate(chunks)]
    taken = [row.parked_id for rows in chunks for row in rows if row.parked_id is not None]
    if not work.ledger.plan_taken(batch, planned, taken):
        return RetryPlan()
    return RetryPlan(batch.batch_id, [chunk.chunk_id for chunk in planned])


def settle_stale(work: Workplace, runner: str | None = None) -> list[str]:
    """Settle, park and commit the retry and redrive batches whose run died, and return their ids.

    Nothing of them is sent again here. References that such a batch took up and did not route are references again.
    One that cannot be settled keeps no other from it: its BooksError, the first of them, is raised at the end.
    """
    grace = work.settings.push_budget_seconds + _STALE_AFTER_SECONDS
    batches = work.ledger.stale_taken_batches(work.clock(), _KINDS, runner, grace_seconds=grace)
    wrong: list[BooksError] = []
    for batch in batches:
        try:
            _settle_and_commit(work, batch)
        except BooksError as error:
            log.error("ALARM %s", error)
            wrong.append(error)
    if wrong:
        raise wrong[0]
    return [batch.batch_id for batch in batches]


def _settle_and_commit(work: Workplace, batch: Batch) -> None:
    if batch.state == "buffered":
        refer_again(work, batch)
    write_dead_letters(work, batch.batch_id)
    schedule_retries(work, batch.batch_id)
    commit(work, batch.batch_id)


def hold_and_release(work: Workplace, rules: RuleSet, runner: str | None, pools: Mapping[str, PoolSlots]) -> None:
    """Hold what today's rules do not let go, and let go of what was held for a reason that is over."""
    now = work.clock()
    statuses = work.ledger.target_statuses()
    for waiting in work.ledger.waiting_targets(runner):
        rule, target, held = waiting.rule, waiting.target, waiting.held
        if held == QUEUE_EXHAUSTED:
            continue  # until somebody has mended the queue and says so: `targets enable`
        reason = hold_reason(rules, statuses, pools, rule, target)
        if keeps_waiting(rules, rule, target, held):
            continue
        if reason == held:
            if _grace_is_over(waiting, now):
                work.ledger.give_up_parked(rule, target, RULE_REMOVED)
        elif held:
            # a target that is gone lets its deliveries age while they wait; every other reason stops the clock
            work.ledger.release_parked(rule, target, aged=held == TARGET_DISABLED, held=held, instead=reason)
        else:
            work.ledger.hold_parked(rule, target, reason)
    work.ledger.release_expired(now)


def hold_reason(
    rules: RuleSet,
    statuses: Mapping[tuple[str, str], TargetStatus],
    pools: Mapping[str, PoolSlots],
    rule_name: str,
    target: str,
) -> str:
    """Return why deliveries of a target must not be sent now, or "" if they may be when they are due."""
    rule = rules.rules.get(rule_name)
    if rule is None or target not in rule.destinations:
        return RULE_REMOVED
    if not rule.enabled:
        return RULE_DISABLED
    status = statuses.get((rule_name, target))
    if status is not None and status.state == "disabled":
        return TARGET_DISABLED
    pool = pools.get(rule.pool_name)
    return POOL_CLOSED if pool is not None and pool.slots == 0 else ""


def _grace_is_over(waiting: WaitingTarget, now: datetime) -> bool:
    if waiting.state != "held" or waiting.held != RULE_REMOVED or waiting.newest_held_since is None:
        return False
    return now - waiting.newest_held_since >= REMOVED_RULE_GRACE


def _chunks(work: Workplace, rules: RuleSet, runner: str | None) -> list[list[Parked]]:
    now = work.clock()
    busy = work.ledger.taken_targets()
    statuses = work.ledger.target_statuses()
    chunks = []
    for rule, target in _due_in_turn(work, now, runner):
        status = statuses.get((rule, target))
        ordered = is_ordered(rules, rule, target)
        admitted = "all" if ordered else admits(status, now)  # an ordered target has no breaker
        if admitted in ("probes", "apart") and (rule, target) in busy:
            continue  # a target that is not well gets one chunk at a time
        probes = admitted == "probes"  # they need few deliveries, and what is not sent of a chunk is parked anew
        limit = work.settings.retry_max_per_target  # deliveries; and so more rows than that need not be read
        rows = work.ledger.due_parked(now, rule, target, limit, runner, smallest=probes)
        if ordered and (status is None or status.state != "disabled"):
            rows = [row for row in rows if row.order_shard is None]
            rows += ordered_due(work, rule, target, now, runner)
        most = min(work.settings.chunk_max_deliveries, limit)
        if probes and not any(row.held for row in rows):  # what is to be given up needs no probe
            most = min(most, GOOD_PROBES)
        rate = _rate(rules, rule, target)
        if rate is not None:  # what it does not let through would only be parked again
            most = min(most, second_of(rate * work.settings.push_budget_seconds))
        rows = _within(rows, most, work.settings.chunk_max_bytes)
        if rows:
            chunks.append(rows)
        if len(chunks) == work.settings.batch_max_chunks:
            break
    return chunks


def _due_in_turn(work: Workplace, now: datetime, runner: str | None) -> list[tuple[str, str]]:
    """Return the targets with deliveries due, the longest waiting first; or, if they are too many, in turn."""
    due = {(each.rule, each.target): each.first_due_at for each in work.ledger.due_targets(now, runner)}
    most = work.settings.batch_max_chunks
    return list(due) if len(due) <= most else in_turn(due, work.ledger.last_taken(len(due) // most + 1))


def _rate(rules: RuleSet, rule: str, target: str) -> float | None:
    found = rules.rules[rule].targets.get(target) if rule in rules.rules else None
    return found.rate_per_second if found is not None else None


def _within(rows: Sequence[Parked], max_deliveries: int, max_bytes: int) -> list[Parked]:
    """Return the first rows that fit a chunk; one row always does, as it was part of a chunk before."""
    kept: list[Parked] = []
    count = size = 0
    for row in rows:
        count += row.count
        size += row.size
        if kept and (count > max_deliveries or size > max_bytes):
            break
        kept.append(row)
    return kept


def _chunk(batch_id: str, number: int, rows: Sequence[Parked]) -> Chunk:
    pieces = tuple(piece for row in rows for piece in _pieces(row))
    return Chunk(
        batch_id=batch_id,
        chunk_id=number,
        pool=SLOW_LANE_POOL,
        weight=SLOW_LANE_WEIGHT,
        pieces=pieces,
        rows=sum(piece.count for piece in pieces),
        size=sum(piece.size for piece in pieces),
        map_index=number,
    )


def _pieces(row: Parked) -> list[Piece]:
    return [
        Piece(
            file=file,
            rows=rows,
            count=rowset.count(rows),
            size=row.size * rowset.count(rows) // row.count,
            rule=row.rule,
            target=row.target,
            attempts=row.attempts,
            held_seconds=row.held_seconds,
            lineage=row.lineage,
            parked_id=row.parked_id,
        )
        for file, rows in row.files
    ]
