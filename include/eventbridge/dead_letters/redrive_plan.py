"""Plans batches of the kind `redrive`, which redeliver the selected dead letters.

The DAG `eventbridge_redrive_dead_letters` and `eventbridge redrives start` call this module; the other stages then run
as for any batch. Without retransform, a batch begins at push: its delivery file holds the stored requests,
under the same delivery ids. With retransform, a batch begins at route: its buffer file holds the events, which the
current rule routes again, with the redrive's id as the replay id.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from eventbridge.dead_letters.reader import ChosenRows, DeadLetter
from eventbridge.dead_letters.redrive_inputs import RedriveInput, newest, write_deliveries, write_events
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model import rowset
from eventbridge.model.batch import Batch
from eventbridge.model.redelivery import Redrive, Redriven
from eventbridge.pipeline.ingest.ingestion_stop import RECHECK_SECONDS, is_ingestion_stopped
from eventbridge.policy.batch_size import MAX_BYTES_IN_MEMORY, MAX_EVENTS_IN_MEMORY
from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.hold_reason import delivery_hold_reason
from eventbridge.rules import RuleSet
from eventbridge.runtime.batch_files import Damaged, dead_letter_files, read_unless_damaged
from eventbridge.runtime.identity import refuse_lost_ledger
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import check_seen
from eventbridge.store.rule_sets import freeze_rules

#: The lowest and the highest rate, in dead letters per second. At 0.1, a batch has one dead letter, and the next batch
#: is planned one window of _RATE_WINDOW_SECONDS later.
LOWEST_RATE = 0.1
HIGHEST_RATE = 1_000_000.0

#: If a redrive has a rate, a batch has at most the dead letters that the rate allows in this time, or in half of a
#: push's timeout if that is less. Its pushes take a token for each dead letter. The next batch is planned no sooner
#: than the rate allows this batch's dead letters.
_RATE_WINDOW_SECONDS = 10.0
_READ_AT_ONCE = 1_000
NO_DELIVERY = "the event never became a delivery"
NO_REQUEST = "there is no request to send again; --retransform makes one"
REDRIVEN_BEFORE = "redriven before; --again includes it"
OTHER_BUS = "the rule is now on another bus"


@dataclass(frozen=True)
class RedrivePlan:
    """The batch that was planned or is continued.

    If `batch_id` is None, no batch is planned before `wait_until`; if both are None, the redrive has ended. Once the
    redrive has ended, `damaged` has the errors of skipped dead letter files.
    """

    batch_id: str | None = None
    wait_until: datetime | None = None
    damaged: Damaged = field(default_factory=dict)


@dataclass
class Survey:
    """The number of dead letters that a redrive would take, the number that it would not take, and the unreadable
    files.

    `taken` counts by `<rule>/<target>`. `left` counts by that and by the reason. A dead letter without a rule counts
    under its bus.
    """

    taken: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    damaged: Damaged = field(default_factory=dict)


def begin_redrive(
    runtime: Runtime, selection: Selection, run: str, *, rate: float | None, retransform: bool, again: bool
) -> Redrive:
    """Record a redrive and return it; if `run` already has one, return that one and ignore the arguments.

    The redrive takes dead letters of batches planned before now, and therefore never the dead letters of its own
    batches. Raises UserError for an invalid rate (see `refuse_rate`), for SQL that is not a condition, and if a caller
    who is limited to owners names no rule that they may see.
    """
    refuse_rate(rate)
    check_seen(runtime, (selection.rule,))
    now = runtime.ledger.now()
    # Evaluates the SQL, so that an error in it is raised before anything is recorded.
    ChosenRows(runtime, selection, dead_letter_files(runtime), {})
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
    return runtime.ledger.redrives.begin(request)


def refuse_rate(rate: float | None) -> None:
    """Raise UserError for a rate that is not a number from 0.1 to 1,000,000 dead letters a second.

    This includes NaN, which the ledger would store as no rate.
    """
    if rate is not None and not (math.isfinite(rate) and LOWEST_RATE <= rate <= HIGHEST_RATE):
        raise UserError(
            f"a rate of {rate:g} dead letters per second cannot be kept. "
            f"Write a rate from {LOWEST_RATE:g} to {HIGHEST_RATE:,.0f}, or none."
        )


def survey(runtime: Runtime, selection: Selection, *, retransform: bool, again: bool) -> Survey:
    """Return which dead letters a redrive would take now, and why it would not take others; changes nothing."""
    check_seen(runtime, (selection.rule,))
    now = runtime.ledger.now()
    return survey_of(runtime, Redrive("", "", selection.as_json(), now, now, retransform=retransform, again=again))


def survey_of(runtime: Runtime, request: Redrive) -> Survey:
    """Return which dead letters a recorded redrive would still take, and why it would not take others."""
    search = _RedriveSearch(runtime, request, {})
    found = Survey(damaged=search.damaged)
    for dead_letter, why_not in search.candidates():
        if why_not:
            found.left[_key(dead_letter), why_not] += 1
        else:
            found.taken[_key(dead_letter)] += 1
    return found


@instrumented("plan_redrive", of="")
def plan_redrive(runtime: Runtime, redrive_id: str, pools: Mapping[str, PoolSlots] | None = None) -> RedrivePlan:
    """Plan the next batch of a redrive, or return its unfinished one; if no dead letters are left, end the redrive.

    A batch has dead letters of one runner or, with retransform, of one target. If it takes two dead letters with the
    same delivery id, only the newer one is delivered. If two processes plan at the same time, one gets no batch, but a
    time to try again, as do all processes while ingestion is stopped.
    """
    refuse_lost_ledger(runtime)
    redrive = runtime.ledger.redrives.get(redrive_id)
    now = runtime.ledger.now()
    unfinished = _unfinished(runtime, redrive)
    if unfinished is not None:
        # After the deadline of a routed batch no push sends its deliveries. `settle_stale` settles the batch.
        open_until = unfinished.deadline_at
        if unfinished.state == "routed" and open_until is not None and open_until <= now:
            return RedrivePlan(wait_until=now + timedelta(seconds=1))
        return RedrivePlan(unfinished.batch_id)
    if redrive.state != "running":
        return RedrivePlan()
    if redrive.next_at > now:
        return RedrivePlan(wait_until=redrive.next_at)
    search = _RedriveSearch(runtime, redrive, pools or {})
    dead_letters = search.first_dead_letters()
    if not dead_letters:
        runtime.ledger.redrives.end(redrive_id, "done")
        return RedrivePlan(damaged=search.damaged)
    if is_ingestion_stopped(runtime, again=logging.INFO):
        return RedrivePlan(wait_until=now + timedelta(seconds=RECHECK_SECONDS))
    return _plan(runtime, redrive, search, dead_letters, now)


def _plan(
    runtime: Runtime, redrive: Redrive, search: _RedriveSearch, dead_letters: Sequence[DeadLetter], now: datetime
) -> RedrivePlan:
    first = dead_letters[0].record
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
    made: RedriveInput = write(runtime, batch, newest(dead_letters))
    next_at = now if redrive.rate is None else now + timedelta(seconds=len(dead_letters) / redrive.rate)
    taken = search.number_rows(batch.batch_id, dead_letters)
    if not runtime.ledger.redrives.take(batch, made.file, made.chunks, taken, next_at):
        return RedrivePlan(wait_until=now)
    return RedrivePlan(batch.batch_id)


def _unfinished(runtime: Runtime, redrive: Redrive) -> Batch | None:
    taken = [
        each
        for rows in runtime.ledger.redrives.list_taken().values()
        for each in rows
        if each.redrive_id == redrive.redrive_id
    ]
    batches = (runtime.ledger.batches.get(batch_id) for batch_id in sorted({each.batch_id for each in taken}))
    return next((batch for batch in batches if batch.state != "committed"), None)


def _key(dead_letter: DeadLetter) -> str:
    record = dead_letter.record
    return f"{record['rule']}/{record['target']}" if record["rule"] else record["bus"]


class _RedriveSearch:
    """Searches the dead letters for a redrive, starting with the oldest batch.

    An unreadable file is skipped and added to `damaged`; the dead letters of all other files are taken.
    """

    def __init__(self, runtime: Runtime, redrive: Redrive, pools: Mapping[str, PoolSlots]) -> None:
        self._runtime = runtime
        self._redrive = redrive
        self._pools = pools
        self._selection = Selection.from_json(redrive.selection)
        self._redriven = runtime.ledger.redrives.list_taken()
        self._statuses = runtime.ledger.targets.statuses()
        self._overrides = runtime.ledger.overrides.get_effective()
        self.rules = runtime.rule_set()
        self.damaged: Damaged = {}

    def candidates(self) -> Iterator[tuple[DeadLetter, str]]:
        """Yield each selected dead letter that this redrive has not taken, with the reason not to take it, or ""."""
        files = dead_letter_files(self._runtime, before=self._redrive.started_at)
        chosen = ChosenRows(self._runtime, self._selection, files, self.damaged)
        for file in reversed(files):
            mine, others = self._taken_rows(file)
            for row, record in chosen.records_of(file):
                if row not in mine:
                    before = row in others and not self._redrive.again
                    yield DeadLetter(file, row, record), REDRIVEN_BEFORE if before else self._obstacle(record)

    def first_dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters of the next batch, with all columns: those of one group, up to the limits of a batch.

        The group is that of the first dead letter to take.
        """
        while True:
            before = len(self.damaged)
            kept = self._first_readable()
            if kept or len(self.damaged) == before:  # otherwise a file was found damaged: search again without it
                return kept

    def _first_readable(self) -> list[DeadLetter]:
        settings = self._runtime.settings
        most = min(
            settings.batch_max_events,
            MAX_EVENTS_IN_MEMORY,
            self._runtime.chunk_sizes.small.deliveries * settings.batch_max_chunks,
        )
        if self._redrive.rate is not None:
            seconds = min(_RATE_WINDOW_SECONDS, settings.push_timeout / 2)
            most = max(1, min(most, int(self._redrive.rate * seconds)))
        kept: list[DeadLetter] = []
        size = 0
        for dead_letter in self._with_all_columns(self._same_group()):
            kept.append(dead_letter)
            size += len(dead_letter.record["event"]) + len(dead_letter.record["request"] or b"")
            if len(kept) >= most or size >= min(settings.batch_max_size, MAX_BYTES_IN_MEMORY):
                break
        return kept

    def number_rows(self, batch_id: str, dead_letters: Sequence[DeadLetter]) -> list[Redriven]:
        """Return the rows that a batch takes from each file, under the file's next sequence number."""
        rows: dict[str, list[int]] = {}
        for dead_letter in dead_letters:
            rows.setdefault(dead_letter.file, []).append(dead_letter.row)
        return [
            Redriven(
                file,
                len(self._redriven.get(file, ())),
                self._redrive.redrive_id,
                batch_id,
                rowset.encode(numbers),
                len(numbers),
            )
            for file, numbers in sorted(rows.items())
        ]

    def _same_group(self) -> Iterator[DeadLetter]:
        group: tuple[str, ...] | None = None
        for dead_letter, why_not in self.candidates():
            if not why_not:
                group = group or self._group(dead_letter)
                if group == self._group(dead_letter):
                    yield dead_letter

    def _group(self, dead_letter: DeadLetter) -> tuple[str, ...]:
        record = dead_letter.record
        if self._redrive.retransform:
            return (record["rule"], record["target"])
        return (self.rules.rules[record["rule"]].runner,)

    def _with_all_columns(self, dead_letters: Iterator[DeadLetter]) -> Iterator[DeadLetter]:
        waiting: list[DeadLetter] = []
        for dead_letter in dead_letters:
            if waiting and (waiting[0].file != dead_letter.file or len(waiting) == _READ_AT_ONCE):
                yield from self._read_whole(waiting)
                waiting = []
            waiting.append(dead_letter)
        if waiting:
            yield from self._read_whole(waiting)

    def _read_whole(self, dead_letters: Sequence[DeadLetter]) -> Iterator[DeadLetter]:
        file, rows = dead_letters[0].file, [dead_letter.row for dead_letter in dead_letters]
        table = read_unless_damaged(self._runtime.store, file, rowset.encode(rows), damaged=self.damaged)
        if table is not None:
            yield from (DeadLetter(file, *each) for each in zip(rows, table.to_pylist(), strict=True))

    def _taken_rows(self, file: str) -> tuple[set[int], set[int]]:
        mine: set[int] = set()
        others: set[int] = set()
        for each in self._redriven.get(file, ()):
            (mine if each.redrive_id == self._redrive.redrive_id else others).update(rowset.decode(each.rows))
        return mine, others

    def _obstacle(self, record: Mapping[str, object]) -> str:
        if record["delivery_id"] is None:
            return NO_DELIVERY
        rule, target = str(record["rule"]), str(record["target"])
        hold_reason = delivery_hold_reason(self.rules, self._statuses, self._pools, self._overrides, rule, target)
        if hold_reason:
            return hold_reason
        if self._redrive.retransform:
            return OTHER_BUS if self.rules.rules[rule].bus != record["bus"] else ""
        return NO_REQUEST if record["reason"] in ("transform_failed", "route_failed") else ""
