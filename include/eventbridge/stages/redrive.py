"""Plans the batches of kind redrive: dead letters that a selection chooses, delivered again, a batch at a time.

Called by the DAG `redrive_dead_letters` and by `eventbridge dead-letters redrive`; the other stages then run as for any
batch. Without retransform a batch begins at push: its delivery file holds the requests as they were, under the same
delivery ids. With it a batch begins at route: its buffer file holds the events, which today's rule routes again under
a replay id, the redrive's own.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from eventbridge import rowset
from eventbridge.errors import UserError
from eventbridge.flow import PoolSlots
from eventbridge.identity import new_batch_id
from eventbridge.ledger.records import Batch, Redrive, Redriven
from eventbridge.rule import RuleSet
from eventbridge.stages.frozen_rules import freeze_rules
from eventbridge.stages.ledger_guard import refuse_lost_ledger
from eventbridge.stages.letter_files import dead_letter_files, read_letters
from eventbridge.stages.records import Chosen, Letter
from eventbridge.stages.redrive_files import LetterFile, newest, write_deliveries, write_events
from eventbridge.stages.retries import hold_reason
from eventbridge.stages.selection import SELECTED_BY, Selection
from eventbridge.stages.workplace import Workplace

#: A batch under a rate holds what the rate allows in so many seconds, or in half of a push's budget, which must do for
#: it: its pushes take a token for each letter. The next one waits for as long.
_RATE_WINDOW_SECONDS = 10.0
#: Letters a second: at 0.1 the wait between two batches of one letter is that of the window.
LOWEST_RATE = 0.1
HIGHEST_RATE = 1_000_000.0
_READ_AT_ONCE = 1_000

NO_DELIVERY = "the event never became a delivery"
NO_REQUEST = "there is no request to send again; --retransform makes one"
REDRIVEN_BEFORE = "redriven before; --again takes it again"
OTHER_BUS = "the rule is on another bus today"


@dataclass(frozen=True)
class RedrivePlan:
    """The batch that was planned, or is to be gone on with; `batch_id` None: see `wait_until`, None: it has ended."""

    batch_id: str | None = None
    wait_until: datetime | None = None


@dataclass
class Survey:
    """What a redrive would take of each `<rule>/<target>`, and what not and why."""

    taken: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)


def begin_redrive(
    work: Workplace, selection: Selection, run: str, *, rate: float | None, retransform: bool, again: bool
) -> Redrive:
    """Record a redrive and return it; for a `run` that has one already, that one, whatever is asked for now.

    It takes dead letters of batches planned before now: what dies again is not redriven by the same redrive.
    Raises UserError for a rate that cannot be kept (see `refuse_rate`), or for SQL that is no condition.
    """
    refuse_rate(rate)
    now = work.ledger.now()
    Chosen(work, selection, dead_letter_files(work))  # a condition that is none is told before anything is recorded
    wish = Redrive(
        redrive_id=str(uuid.uuid4()),
        run=run,
        selection=selection.as_json(),
        started_at=now,
        next_at=now,
        rate=rate,
        retransform=retransform,
        again=again,
    )
    return work.ledger.begin_redrive(wish)


def refuse_rate(rate: float | None) -> None:
    """Raise UserError for a rate of fewer than 0.1 or more than 1,000,000 letters a second, or one that is no number.

    NaN above all: the ledger would keep it as no rate at all.
    """
    if rate is not None and not (math.isfinite(rate) and LOWEST_RATE <= rate <= HIGHEST_RATE):
        raise UserError(
            f"a rate of {rate:g} letters a second cannot be kept. "
            f"Write one from {LOWEST_RATE:g} to {HIGHEST_RATE:,.0f}, or none."
        )


def survey(work: Workplace, selection: Selection, *, retransform: bool, again: bool) -> Survey:
    """Return what a redrive would take now, and what it would leave and why; changes nothing."""
    now = work.ledger.now()
    return survey_of(work, Redrive("", "", selection.as_json(), now, now, retransform=retransform, again=again))


def survey_of(work: Workplace, wish: Redrive) -> Survey:
    """Return what a redrive would still take, and what it would leave and why; of one that is done, what it left."""
    found = Survey()
    for letter, why_not in _Search(work, wish, {}).letters():
        if why_not:
            found.left[_key(letter), why_not] += 1
        else:
            found.taken[_key(letter)] += 1
    return found


def plan_redrive(work: Workplace, redrive_id: str, pools: Mapping[str, PoolSlots] | None = None) -> RedrivePlan:
    """Plan the next batch of a redrive, or return the one that is not finished; without letters left it is done.

    A batch holds letters of one runner or, with retransform, of one target. Two letters of one delivery id are
    delivered once, as the newer says. Of two planners at once one gets nothing and is told to come again.
    """
    refuse_lost_ledger(work)
    redrive = work.ledger.redrive(redrive_id)
    now = work.ledger.now()
    unfinished = _unfinished(work, redrive)
    if unfinished is not None:
        # what was routed belongs to the pushes under way until its deadline, and then to settle_stale
        open_until = unfinished.deadline_at
        if unfinished.state == "routed" and open_until is not None and open_until <= now:
            return RedrivePlan(wait_until=now + timedelta(seconds=1))
        return RedrivePlan(unfinished.batch_id)
    if redrive.state != "running":
        return RedrivePlan()
    if redrive.next_at > now:
        return RedrivePlan(wait_until=redrive.next_at)
    search = _Search(work, redrive, pools or {})
    letters = search.first_letters()
    if not letters:
        work.ledger.end_redrive(redrive_id, "done")
        return RedrivePlan()
    return _plan(work, redrive, search, letters, now)


def _plan(work: Workplace, redrive: Redrive, search: _Search, letters: Sequence[Letter], now: datetime) -> RedrivePlan:
    first = letters[0].record
    rule = search.rules.rules[first["rule"]]
    rules = search.rules
    if redrive.retransform:
        only = rule.model_copy(update={"targets": {first["target"]: rule.targets[first["target"]]}})
        rules = RuleSet(buses={rule.bus: search.rules.buses[rule.bus]}, rules={rule.name: only})
    batch = Batch(
        batch_id=new_batch_id(now),
        kind="redrive",
        runner=rule.runner,
        bus=rule.bus if redrive.retransform else "",
        state="buffered" if redrive.retransform else "routed",
        rule_set=freeze_rules(work.store, rules),
        planned_at=now,
        deadline_at=None if redrive.retransform else now + timedelta(seconds=work.settings.batch_deadline_seconds),
        replay_id=redrive.redrive_id if redrive.retransform else "",
    )
    write = write_events if redrive.retransform else write_deliveries
    made: LetterFile = write(work, batch, newest(letters))
    next_at = now if redrive.rate is None else now + timedelta(seconds=len(letters) / redrive.rate)
    taken = search.taken(batch.batch_id, letters)
    if not work.ledger.plan_redriven(batch, made.file, made.chunks, taken, next_at):
        return RedrivePlan(wait_until=now)
    return RedrivePlan(batch.batch_id)


def _unfinished(work: Workplace, redrive: Redrive) -> Batch | None:
    taken = [each for rows in work.ledger.redriven().values() for each in rows if each.redrive_id == redrive.redrive_id]
    batches = (work.ledger.batch(batch_id) for batch_id in sorted({each.batch_id for each in taken}))
    return next((batch for batch in batches if batch.state != "committed"), None)


class _Search:
    """Looks for the letters that a redrive is to take, the oldest batch's first."""

    def __init__(self, work: Workplace, redrive: Redrive, pools: Mapping[str, PoolSlots]) -> None:
        self._work = work
        self._redrive = redrive
        self._pools = pools
        self._selection = Selection.from_json(redrive.selection)
        self._redriven = work.ledger.redriven()
        self._statuses = work.ledger.target_statuses()
        self.rules = work.rule_set()

    def letters(self) -> Iterator[tuple[Letter, str]]:
        """Yield each selected letter that this redrive has not taken, with why it is not to be taken, or ""."""
        files = dead_letter_files(self._work, before=self._redrive.started_at)
        chosen = Chosen(self._work, self._selection, files)
        for file in reversed(files):
            mine, others = self._taken_of(file)
            rows = [row for row in chosen.rows_of(file) if row not in mine]
            if rows:
                found = read_letters(self._work.store, file, rowset.encode(rows), SELECTED_BY).to_pylist()
                for row, record in zip(rows, found, strict=True):
                    before = row in others and not self._redrive.again
                    yield Letter(file, row, record), REDRIVEN_BEFORE if before else self._obstacle(record)

    def first_letters(self) -> list[Letter]:
        """Return the letters of the next batch, whole: what goes with the first one, as many as a batch may hold."""
        settings = self._work.settings
        most = min(settings.batch_max_events, settings.chunk_max_deliveries * settings.batch_max_chunks)
        if self._redrive.rate is not None:
            seconds = min(_RATE_WINDOW_SECONDS, settings.push_budget_seconds / 2)
            most = max(1, min(most, int(self._redrive.rate * seconds)))
        kept: list[Letter] = []
        size = 0
        for letter in self._whole(self._alike()):
            kept.append(letter)
            size += len(letter.record["event"]) + len(letter.record["request"] or b"")
            if len(kept) >= most or size >= settings.batch_max_bytes:
                break
        return kept

    def taken(self, batch_id: str, letters: Sequence[Letter]) -> list[Redriven]:
        """Return what a batch takes of each file, at the file's next turn."""
        rows: dict[str, list[int]] = {}
        for letter in letters:
            rows.setdefault(letter.file, []).append(letter.row)
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

    def _alike(self) -> Iterator[Letter]:
        group: tuple[str, ...] | None = None
        for letter, why_not in self.letters():
            if not why_not:
                group = group or self._group(letter)
                if group == self._group(letter):
                    yield letter

    def _group(self, letter: Letter) -> tuple[str, ...]:
        record = letter.record
        if self._redrive.retransform:
            return (record["rule"], record["target"])
        return (self.rules.rules[record["rule"]].runner,)

    def _whole(self, letters: Iterator[Letter]) -> Iterator[Letter]:
        waiting: list[Letter] = []
        for letter in letters:
            if waiting and (waiting[0].file != letter.file or len(waiting) == _READ_AT_ONCE):
                yield from _read(self._work, waiting)
                waiting = []
            waiting.append(letter)
        yield from _read(self._work, waiting)

    def _taken_of(self, file: str) -> tuple[set[int], set[int]]:
        mine: set[int] = set()
        others: set[int] = set()
        for each in self._redriven.get(file, ()):
            (mine if each.redrive_id == self._redrive.redrive_id else others).update(rowset.decode(each.rows))
        return mine, others

    def _obstacle(self, record: Mapping[str, object]) -> str:
        if record["delivery_id"] is None:
            return NO_DELIVERY
        rule, target = str(record["rule"]), str(record["target"])
        held = hold_reason(self.rules, self._statuses, self._pools, rule, target)
        if held:
            return held
        if self._redrive.retransform:
            return OTHER_BUS if self.rules.rules[rule].bus != record["bus"] else ""
        return NO_REQUEST if record["reason"] in ("TransformFailed", "RouteFailed") else ""


def _read(work: Workplace, letters: Sequence[Letter]) -> Iterator[Letter]:
    if letters:
        file = letters[0].file
        table = read_letters(work.store, file, rowset.encode(letter.row for letter in letters))
        for letter, record in zip(letters, table.to_pylist(), strict=True):
            yield Letter(file, letter.row, record)


def _key(letter: Letter) -> str:
    record = letter.record
    return f"{record['rule']}/{record['target']}" if record["rule"] else record["bus"]
