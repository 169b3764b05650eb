"""Plans batches of kind redrive: selected dead letters that are delivered again, a batch at a time.

Called by the DAG `eventbridge_redrive_dead_letters` and by `eventbridge dead-letters redrive`; the other stages then
run as for any batch. Without retransform a batch begins at push: its delivery file holds the requests as they were,
under the same delivery ids. With it a batch begins at route: its buffer file holds the events, which today's rule
routes again under a replay id, the redrive's own.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from eventbridge.dead_letters.reader import Chosen, DeadLetter
from eventbridge.dead_letters.redrive_inputs import DeadLetterFile, newest, write_deliveries, write_events
from eventbridge.dead_letters.redrive_search import Search
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.model.redelivery import Redrive
from eventbridge.pipeline.ingest.ingestion_stop import RECHECK_SECONDS, is_ingestion_stopped
from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules import RuleSet
from eventbridge.runtime.dead_letter_files import Damaged, dead_letter_files
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.ledger_identity import refuse_lost_ledger
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import check_seen
from eventbridge.store.rule_sets import freeze_rules

#: dead letters a second: at 0.1 the wait between two batches of one letter is that of the window.
LOWEST_RATE = 0.1
HIGHEST_RATE = 1_000_000.0


@dataclass(frozen=True)
class RedrivePlan:
    """The batch that was planned or is continued; `batch_id` None: see `wait_until`, None: the redrive has ended.

    `damaged`: the errors of skipped dead letter files, once it has ended.
    """

    batch_id: str | None = None
    wait_until: datetime | None = None
    damaged: Damaged = field(default_factory=dict)


@dataclass
class Survey:
    """The dead letters that a redrive would take by `<rule>/<target>`, the others by reason, and unreadable files."""

    taken: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    damaged: Damaged = field(default_factory=dict)


def begin_redrive(
    runtime: Runtime, selection: Selection, run: str, *, rate: float | None, retransform: bool, again: bool
) -> Redrive:
    """Record a redrive and return it; if `run` has one already, return that one and ignore the arguments.

    It takes dead letters of batches planned before now, so that it never redrives its own dead letters.
    Raises UserError for an invalid rate (see `refuse_rate`), for SQL that is not a condition, and if a caller who is
    limited to owners names no rule that they may see.
    """
    refuse_rate(rate)
    check_seen(runtime, (selection.rule,))
    now = runtime.ledger.now()
    Chosen(
        runtime, selection, dead_letter_files(runtime), {}
    )  # SQL that is not a condition is reported before anything is recorded
    request = Redrive(
        redrive_id=str(uuid.uuid4()),
        run=run,
        selection=selection.as_json(),
        started_at=now,
        next_at=now,
        rate=rate,
        retransform=retransform,
        again=again,
    )
    return runtime.ledger.begin_redrive(request)


def refuse_rate(rate: float | None) -> None:
    """Raise UserError for a rate that is not a number from 0.1 to 1,000,000 dead letters a second.

    NaN in particular: the ledger would store it as no rate.
    """
    if rate is not None and not (math.isfinite(rate) and LOWEST_RATE <= rate <= HIGHEST_RATE):
        raise UserError(
            f"a rate of {rate:g} dead letters a second cannot be kept. "
            f"Write one from {LOWEST_RATE:g} to {HIGHEST_RATE:,.0f}, or none."
        )


def survey(runtime: Runtime, selection: Selection, *, retransform: bool, again: bool) -> Survey:
    """Return the dead letters that a redrive would take now, and the others with the reason; changes nothing."""
    check_seen(runtime, (selection.rule,))
    now = runtime.ledger.now()
    return survey_of(runtime, Redrive("", "", selection.as_json(), now, now, retransform=retransform, again=again))


def survey_of(runtime: Runtime, request: Redrive) -> Survey:
    """Return the dead letters that a recorded redrive would still take, and the others with the reason."""
    search = Search(runtime, request, {})
    found = Survey(damaged=search.damaged)
    for letter, why_not in search.letters():
        if why_not:
            found.left[_key(letter), why_not] += 1
        else:
            found.taken[_key(letter)] += 1
    return found


@instrumented("plan_redrive", of="")
def plan_redrive(runtime: Runtime, redrive_id: str, pools: Mapping[str, PoolSlots] | None = None) -> RedrivePlan:
    """Plan the next batch of a redrive, or return its unfinished one; without further dead letters it is done.

    A batch has dead letters of one runner or, with retransform, of one target. Two dead letters of one delivery id
    are delivered once, by the newer one. If two processes plan at once, one gets no batch and a time to try again, as
    do all while the store is full.
    """
    refuse_lost_ledger(runtime)
    redrive = runtime.ledger.redrive(redrive_id)
    now = runtime.ledger.now()
    unfinished = _unfinished(runtime, redrive)
    if unfinished is not None:
        # until its deadline a routed batch belongs to its pushes, afterwards to settle_stale
        open_until = unfinished.deadline_at
        if unfinished.state == "routed" and open_until is not None and open_until <= now:
            return RedrivePlan(wait_until=now + timedelta(seconds=1))
        return RedrivePlan(unfinished.batch_id)
    if redrive.state != "running":
        return RedrivePlan()
    if redrive.next_at > now:
        return RedrivePlan(wait_until=redrive.next_at)
    search = Search(runtime, redrive, pools or {})
    letters = search.first_dead_letters()
    if not letters:
        runtime.ledger.end_redrive(redrive_id, "done")
        return RedrivePlan(damaged=search.damaged)
    if is_ingestion_stopped(runtime, again=logging.INFO):
        return RedrivePlan(wait_until=now + timedelta(seconds=RECHECK_SECONDS))
    return _plan(runtime, redrive, search, letters, now)


def _plan(
    runtime: Runtime, redrive: Redrive, search: Search, letters: Sequence[DeadLetter], now: datetime
) -> RedrivePlan:
    first = letters[0].record
    rule = search.rules.rules[first["rule"]]
    rules = search.rules
    if redrive.retransform:
        only = rule.model_copy(update={"targets": {first["target"]: rule.targets[first["target"]]}})
        buses = {rule.bus: search.rules.buses[rule.bus]}
        rules = RuleSet(buses=buses, rules={rule.name: only}, quotas=rules.quotas)
    batch = Batch(
        batch_id=new_batch_id(now),
        kind="redrive",
        runner=rule.runner,
        bus=rule.bus if redrive.retransform else "",
        state="buffered" if redrive.retransform else "routed",
        rule_set=freeze_rules(runtime.store, rules),
        planned_at=now,
        deadline_at=None if redrive.retransform else now + timedelta(seconds=runtime.settings.batch_timeout),
        replay_id=redrive.redrive_id if redrive.retransform else "",
    )
    write = write_events if redrive.retransform else write_deliveries
    made: DeadLetterFile = write(runtime, batch, newest(letters))
    next_at = now if redrive.rate is None else now + timedelta(seconds=len(letters) / redrive.rate)
    taken = search.taken(batch.batch_id, letters)
    if not runtime.ledger.plan_redriven(batch, made.file, made.chunks, taken, next_at):
        return RedrivePlan(wait_until=now)
    return RedrivePlan(batch.batch_id)


def _unfinished(runtime: Runtime, redrive: Redrive) -> Batch | None:
    taken = [
        each for rows in runtime.ledger.redriven().values() for each in rows if each.redrive_id == redrive.redrive_id
    ]
    batches = (runtime.ledger.batch(batch_id) for batch_id in sorted({each.batch_id for each in taken}))
    return next((batch for batch in batches if batch.state != "committed"), None)


def _key(letter: DeadLetter) -> str:
    record = letter.record
    return f"{record['rule']}/{record['target']}" if record["rule"] else record["bus"]
