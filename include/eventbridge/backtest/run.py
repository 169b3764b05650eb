"""Runs one candidate, or two in one pass, over the archive, like a replay that ends after routing, and reports.

Nothing is planned in the ledger and nothing is delivered. Spark's workers count the results; the files of budgeted
rules are written under this run's id and removed at its end. A process that dies before that leaves orphaned files.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from eventbridge.backtest.report import BacktestReport, DiffReport
from eventbridge.backtest.tally import (
    CandidateTally,
    PairTally,
    ShareOutcome,
    compare_outcomes,
    counts_of,
    event_rows_of,
    outcome_of,
)
from eventbridge.errors import UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model import rowset
from eventbridge.model.backtested import BacktestedSlice
from eventbridge.model.redelivery import ArchiveFile
from eventbridge.policy.archive_cover import Span, take_once
from eventbridge.policy.batch_size import MAX_EVENTS_IN_MEMORY
from eventbridge.progress import Progress, unreported
from eventbridge.routing.job import ArchiveSpan, BacktestSlice, RouteJob, Router, RuleShare
from eventbridge.rules import Rule, RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules
from eventbridge.store.schemas import ROW_GROUP_ROWS

log = logging.getLogger(__name__)

#: The maximum number of rows of one Spark job, if no rule is budgeted.
_JOB_ROWS = 5_000_000

#: The maximum number of rows of the first job. It is small, because later jobs need not render outputs for which the
#: first job found enough samples.
_FIRST_ROWS = 200_000

#: The number of rows for which a slice may take EVENTBRIDGE_ROUTE_SLICE_TIMEOUT, as in route; larger slices get more
#: time.
_ROWS_OF_SLICE = 20_000

#: The runner name under which backtests get a Spark session and Python workers.
_RUNNER = "backtest"

#: The events that patterns matched, by candidate and rule: pairs of file and row set.
_CandidateEvents = list[dict[str, list[tuple[str, str]]]]

#: The maximum number of rows of one part. Each part costs 30 ms of overhead in Spark.
_MAX_ROWS = 100_000

#: The minimum number of parts, so that all of Spark's slots have work until the end.
_MIN_PARTS = 16
Found = tuple[ArchiveFile, tuple[Span, ...]]
#: Stores a rule set where the router finds it, and returns its hash.
Freeze = Callable[[Store, RuleSet], str]


@dataclass(frozen=True)
class ArchivePart:
    """Events of batches planned from `since` (included) to `until` (excluded); at most `samples` of a kind are kept.

    `max_events` is the number of archived events above which the run is refused; None means no limit.
    """

    since: datetime
    until: datetime
    samples: int
    max_events: int | None = None


def backtest(
    runtime: Runtime,
    candidate: Candidate,
    part: ArchivePart,
    router: Router,
    progress: Progress = unreported,
    *,
    freeze: Freeze = freeze_rules,
) -> BacktestReport:
    """Run a candidate over a part of the archive. Raises SparkError if Spark fails, StoreError for a lost file.

    `progress` gets the number of archived events. `freeze` stores the candidate's rules for the router, and returns
    their hash. Raises UserError if the part has more events than it may have.
    """
    run = _Run(runtime, [candidate], part, router, progress, freeze)
    run.process()
    seconds = (part.until - part.since).total_seconds()
    return BacktestReport(
        backtest_id=run.backtest_id,
        made_at=run.made_at,
        candidate=candidate.name,
        bus=candidate.bus,
        since=part.since,
        until=part.until,
        files=len(run.files),
        events=run.landed.total(),
        rules=tuple(run.tallies[0].report(rule, run.landed, seconds) for rule in run.rules[0].values()),
    )


def diff(
    runtime: Runtime,
    a: Candidate,
    b: Candidate,
    part: ArchivePart,
    router: Router,
    progress: Progress = unreported,
) -> DiffReport:
    """Run two candidates over a part of the archive in one pass. Raises the same errors as `backtest`."""
    run = _Run(runtime, [a, b], part, router, progress)
    run.process()
    ours, theirs = run.rules
    paired = [{names[side] for names in run.pairs} for side in (0, 1)]
    return DiffReport(
        backtest_id=run.backtest_id,
        made_at=run.made_at,
        a=a.name,
        b=b.name,
        bus=a.bus,
        since=part.since,
        until=part.until,
        files=len(run.files),
        events=run.landed.total(),
        only_in_a=tuple(sorted(ours.keys() - paired[0])),
        only_in_b=tuple(sorted(theirs.keys() - paired[1])),
        pairs=tuple(tally.report(ours[one], theirs[other]) for (one, other), tally in run.pairs.items()),
    )


@dataclass
class _Run:
    """One pass over the archive."""

    runtime: Runtime
    candidates: Sequence[Candidate]
    part: ArchivePart
    router: Router
    progress: Progress
    freeze: Freeze = freeze_rules
    landed: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.made_at = self.runtime.ledger.now()
        self.backtest_id = new_batch_id(self.made_at)
        self.rules: list[dict[str, Rule]] = [dict(sorted(each.rules.rules.items())) for each in self.candidates]
        self.tallies = [CandidateTally(self.part.samples) for _ in self.candidates]
        names = _pairs_of(*self.rules) if len(self.rules) == 2 else []
        self.pairs = {pair: PairTally(self.part.samples) for pair in names}
        self._apart = _separately_routed(self.candidates[0].rules, self.candidates[-1].rules, names)
        self._failed_rules: list[dict[str, str]] = [{} for _ in self.candidates]
        part = self.part
        found = self.runtime.ledger.archive.files(self.candidates[0].bus, part.since, part.until, self.made_at)
        self.files: list[Found] = take_once(found, "")
        rows = sum(file.rows for file, _ in self.files)
        if part.max_events is not None and rows > part.max_events:
            raise UserError(
                f"the time range has {rows:,} archived events, and this backtest reads at most {part.max_events:,}. "
                "Choose a shorter range, or run `eventbridge rules backtest`, which has no limit"
            )
        self._sets = [self.freeze(self.runtime.store, each.rules) for each in self.candidates]

    def process(self) -> None:
        """Process all parts, one Spark job after another."""
        rows = self._rows = sum(file.rows for file, _ in self.files)
        job_rows = min(self.runtime.settings.batch_max_events, MAX_EVENTS_IN_MEMORY) if any(self._apart) else _JOB_ROWS
        done = 0
        try:
            for group in _jobs_of(parts_of(self.files), _FIRST_ROWS, job_rows):
                self._take(group, done)
                done += sum(map(_rows_in, group))
                log.info("%s of %s archived events processed", f"{done:,}", f"{rows:,}")
        finally:
            self._clear()

    def _take(self, group: Sequence[tuple[ArchiveSpan, ...]], done: int) -> None:
        tasks = [
            BacktestSlice(
                slice_id=f"{done}/{number:06d}",
                spans=spans,
                samples=self.part.samples,
                other=self._sets[1] if len(self._sets) > 1 else "",
                pairs=tuple(self.pairs),
                apart=self._apart,
                sampled=(self.tallies[0].sampled(), self.tallies[-1].sampled()),
            )
            for number, spans in enumerate(group)
        ]
        rows_of = {task.slice_id: _rows_in(task.spans) for task in tasks}
        candidate_events: _CandidateEvents = [{} for _ in self.candidates]
        for result in self.router.route_slices(self._job(0), tasks):
            detail = result.detail
            assert isinstance(detail, BacktestedSlice), "a part of the archive was requested"
            self.landed.update(dict(detail.landed))
            for tally, kept, counts in zip(self.tallies, candidate_events, detail.candidates, strict=True):
                tally.add(counts)
                for rule, files in counts.candidate_events.items():
                    kept.setdefault(rule, []).extend(files)
            for tally_of_pair, found in zip(self.pairs.values(), detail.pairs, strict=True):
                tally_of_pair.add(found)
            done += rows_of[result.slice_id]
            self.progress(done, self._rows)
        if any(candidate_events):
            self._route_budgeted(candidate_events)

    def _route_budgeted(self, candidate_events: _CandidateEvents) -> None:
        """Route the events that patterns of budgeted rules match, candidate by candidate, and compare the results."""
        outcomes = [self._outcomes(side, kept) for side, kept in enumerate(candidate_events)]
        for side, tally in enumerate(self.tallies):
            for rule, outcome in outcomes[side].items():
                tally.add(counts_of(self.runtime.store, self.rules[side][rule], outcome, self.part.samples))
                tally.left_out[rule].add(len(outcome.left), outcome.why)
        for (a, b), pair in self.pairs.items():
            if a in self._apart[0]:
                two = outcomes[0].get(a, ShareOutcome()), outcomes[1].get(b, ShareOutcome())
                rules = self.rules[0][a], self.rules[1][b]
                counts, left = compare_outcomes(self.runtime.store, rules, two, self.part.samples)
                pair.add(counts)
                pair.left_out.add(left, "; ".join(sorted({each.why for each in two if each.left})))

    def _outcomes(self, side: int, candidate_events: dict[str, list[tuple[str, str]]]) -> dict[str, ShareOutcome]:
        settings, failed = self.runtime.settings, self._failed_rules[side]
        found = {
            rule: ShareOutcome(left=event_rows_of(files), why=failed[rule])
            for rule, files in candidate_events.items()
            if rule in failed
        }
        shares = [
            # The budget for deferred matches, as in a retry batch, because no other batch waits for a backtest.
            RuleShare(f"rule/{side}/{rule}", rule, _merge_files(files), settings.route_deferred_cpu_budget)
            for rule, files in sorted(candidate_events.items())
            if rule not in failed
        ]
        if not shares:
            return found
        rule_of = {share.slice_id: share.rule for share in shares}
        for result in self.router.route_slices(self._job(side), shares):
            rule = rule_of[result.slice_id]
            found[rule] = outcome_of(self.runtime.store, result)
            error = getattr(result.detail, "error", "")
            if error:  # Spark rejects its SQL, or the SQL does not terminate: route puts such a rule on hold
                failed[rule] = error
        return found

    def _job(self, side: int) -> RouteJob:
        settings = self.runtime.settings
        rows = _rows_of_part(sum(file.rows for file, _ in self.files))
        return RouteJob(
            batch_id=self.backtest_id,
            runner=_RUNNER,
            bus=self.candidates[side].bus,
            rule_set=self._sets[side],
            planned_at=self.made_at,
            store_uri=self.runtime.store.uri,
            attempt=uuid.uuid4().hex,
            event_max_size=settings.event_max_size,
            piece_max_deliveries=self.runtime.chunk_sizes.small.deliveries,
            piece_max_bytes=self.runtime.chunk_sizes.small.size,
            old=True,
            slice_seconds=settings.route_slice_timeout * max(1.0, rows / _ROWS_OF_SLICE),
        )

    def _clear(self) -> None:
        if any(self._apart):
            for path in self.runtime.store.list(layout.batch_deliveries(self.made_at, self.backtest_id)):
                self.runtime.store.delete(path)


def _merge_files(files: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return each file once, with all of its row numbers."""
    rows: dict[str, list[int]] = {}
    for file, text in files:
        rows.setdefault(file, []).extend(rowset.decode(text))
    return tuple((file, rowset.encode(numbers)) for file, numbers in rows.items())


def parts_of(files: Sequence[Found]) -> list[tuple[ArchiveSpan, ...]]:
    """Return parts of about the same number of rows, in the order of the files, cut at row groups."""
    step = _rows_of_part(sum(file.rows for file, _ in files))
    parts: list[tuple[ArchiveSpan, ...]] = []
    part: list[ArchiveSpan] = []
    room = step
    for span in _pieces(files, step):
        rows = span.last - span.first
        if part and rows > room:
            parts.append(tuple(part))
            part, room = [], step
        part.append(span)
        room -= rows
    return [*parts, tuple(part)] if part else parts


def _rows_in(spans: Iterable[ArchiveSpan]) -> int:
    return sum(span.last - span.first for span in spans)


def _rows_of_part(rows: int) -> int:
    """Return the number of rows of one part, which consists of whole row groups."""
    groups = -(-rows // (_MIN_PARTS * ROW_GROUP_ROWS))
    return min(max(groups, 1) * ROW_GROUP_ROWS, _MAX_ROWS)


def _jobs_of(
    parts: Sequence[tuple[ArchiveSpan, ...]], first: int, rows: int
) -> Iterator[list[tuple[ArchiveSpan, ...]]]:
    """Yield parts in groups of about `rows` rows, at least one part each; a group becomes one Spark job.

    The first group has about `first` rows, if that is less.
    """
    most = min(first, rows)
    group: list[tuple[ArchiveSpan, ...]] = []
    count = 0
    for part in parts:
        size = _rows_in(part)
        if group and count + size > most:
            yield group
            group, count, most = [], 0, rows
        group.append(part)
        count += size
    if group:
        yield group


def _pieces(files: Sequence[Found], step: int) -> Iterator[ArchiveSpan]:
    for file, offsets in files:
        whole = any(start <= file.start and end >= file.end for start, end in offsets)
        for first in range(0, file.rows, step):
            yield ArchiveSpan(file.path, first, min(first + step, file.rows), None if whole else offsets)


@dataclass(frozen=True)
class Candidate:
    """Those rules of one bus that are backtested, under a name that the user gave; all of them are enabled."""

    name: str
    bus: str
    rules: RuleSet


def _pairs_of(a: Iterable[str], b: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of rules of A and B to compare: those of the same name or, if each has one rule, these two."""
    ours, theirs = sorted(a), sorted(b)
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    return [(name, name) for name in ours if name in theirs]


def _separately_routed(
    a: RuleSet, b: RuleSet, pairs: Iterable[tuple[str, str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return those rules of A and B that are routed separately: budgeted rules, and the rules compared with them."""
    ours, theirs = ({rule.name for rule in rules.rules.values() if rule.is_budgeted} for rules in (a, b))
    for one, other in pairs:
        if one in ours or other in theirs:
            ours.add(one)
            theirs.add(other)
    return tuple(sorted(ours)), tuple(sorted(theirs))
