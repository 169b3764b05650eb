"""Backtests a part of the archive: matches, counts by minute, keeps samples and failures, and compares two candidates.

The code runs in this process or in a Spark worker. Counting is vectorised; only samples and failures are handled one by
one. This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from eventbridge.event.json_document import write_document
from eventbridge.matching.scan.leaves import ESCAPED
from eventbridge.matching.scan.parts import ARRAY, MISSING, OBJECT, find_parts, part_paths
from eventbridge.matching.scan.texts import Texts
from eventbridge.matching.scan.tree import Step
from eventbridge.model import backtested, rowset
from eventbridge.routing.events import MatchedRows, SliceEvents, match_rows
from eventbridge.routing.job import ArchiveSpan, BacktestSlice, RouteJob, SliceResult
from eventbridge.routing.outputs import differ, event_sample, every_output, failures, output_of, outputs
from eventbridge.routing.program import RouteProgram, route_program
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.frozen import content_of
from eventbridge.store.parquet import tables_of_span
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import frozen_rules
from eventbridge.transform.kernel.program import ARRIVAL, BODY, DELIVERY_ID, LITERAL, PART

#: The number of events to read and match at a time, which should fit into the CPU cache.
_EVENTS_PER_BLOCK: Final = 4_000
#: The maximum number of distinct failure messages per target; all others are counted together.
_TEXTS: Final = 20
_MINUTE: Final = 60_000_000
Numbers = npt.NDArray[np.int64]

#: Operations that never fail.
_SURE: Final = frozenset({LITERAL, BODY, DELIVERY_ID, ARRIVAL})
#: The kinds of parts that must be rendered to detect half of a surrogate pair.
_UNSURE: Final = (ESCAPED, OBJECT, ARRAY)
_BACKSLASH, _U, _D, _LOWER = ord("\\"), ord("u"), ord("d"), 0x20
#: The maximum number of paths to search at a time, because the result has several bytes for each event and path.
_MAX_PATHS: Final = 256


def backtest_slice(store: Store, rule_set: RuleSet, job: RouteJob, task: BacktestSlice) -> SliceResult:
    """Match and count the valid events in a part of the archive, without writing anything.

    Raises StoreError if a file cannot be read. EventError cannot happen, because buffer has parsed the same bytes.
    """
    candidates = [_Candidate(route_program(job.rule_set, rule_set, job.bus), task, 0)]
    if task.other:
        candidates.append(_Candidate(route_program(task.other, frozen_rules(store, task.other), job.bus), task, 1))
    pairs = [
        _Pair(candidates[0], candidates[1], a, b, task.samples) for a, b in task.pairs if candidates[0].is_counted(a)
    ]
    landed: Counter[int] = Counter()
    for span in task.spans:
        for events in _events(store, job, span, named=bool(pairs)):
            landed.update(dict(_minutes(events.arrived_at)))
            matched = [each.take(span.file, events) for each in candidates]
            for pair in pairs:
                pair.take(span.file, events, *matched)
    compared = {(pair.a, pair.b): pair.counts() for pair in pairs}
    detail = backtested.BacktestedSlice(
        landed=tuple(sorted(landed.items())),
        candidates=tuple(each.counts() for each in candidates),
        pairs=tuple(compared.get(names, backtested.PairCounts()) for names in task.pairs),
    )
    return SliceResult(task.slice_id, None, 0, detail)


def _events(store: Store, job: RouteJob, span: ArchiveSpan, *, named: bool) -> Iterator[SliceEvents]:
    columns = (
        ["arrived_at", "body", "status"] + ["offset"] * (span.offsets is not None) + ["source", "event_id"] * named
    )
    for first, table in tables_of_span(store, span.file, span.first, span.last, columns, _EVENTS_PER_BLOCK):
        rows = np.arange(first, first + table.num_rows, dtype=np.int32)
        if span.offsets is not None:
            offsets = table["offset"].to_numpy()
            taken = np.zeros(len(rows), np.bool_)
            for start, end in span.offsets:
                taken |= (offsets >= start) & (offsets < end)
            table, rows = table.filter(taken), rows[taken]
        events = SliceEvents.valid(table, rows, job.event_max_size)
        if len(events):
            yield events


def _minutes(times: Numbers) -> backtested.Minutes:
    """Return how many of the times are in each minute."""
    minutes, counts = np.unique(times // _MINUTE, return_counts=True)
    return tuple(zip(minutes.tolist(), counts.tolist(), strict=True))


class _Candidate:
    """Collects the results of one candidate."""

    def __init__(self, program: RouteProgram, task: BacktestSlice, side: int) -> None:
        self.program = program
        self.number_of = {rule.name: number for number, rule in enumerate(program.rules)}
        self._apart = frozenset(task.apart[side])
        self._most = task.samples
        self._minutes: dict[str, Counter[int]] = defaultdict(Counter)
        self._samples: dict[str, list[backtested.OutputSample]] = defaultdict(list)
        self._failures: dict[str, _Failures] = {}
        self._candidate_events: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.routes_of: dict[int, list[int]] = defaultdict(list)
        for route, number in enumerate(program.rule_of_route.tolist()):
            self.routes_of[number].append(route)
        counted = [route for route, each in enumerate(program.routes) if each.rule.name not in self._apart]
        self._parts = NamedParts(program, [route for route in counted if is_decided_by_parts(program, route)])
        by_parts = self._parts.routes if self._parts.is_small else []
        self._rendered = {route for route in counted if can_fail(program, route)} - set(by_parts)
        self._sampled = set(task.sampled[side])
        self._settled: set[int] = set()  # rules of which only the counts are still needed

    def is_counted(self, rule: str) -> bool:
        """Return whether a rule is counted here and not routed as a share."""
        return rule not in self._apart

    def take(self, file: str, events: SliceEvents) -> MatchedRows:
        """Match and count events of a file; return which rule matches which events."""
        matched, _ = match_rows(self.program, events)
        self._count(events, matched)
        for number in np.flatnonzero(matched.counts).tolist():
            if number not in self._settled:
                self._take_details(file, events, number, matched.rows_of(number))
        if self._parts.is_small and self._parts.routes:
            self._take_failures_by_parts(events, matched)
        return matched

    def _take_details(self, file: str, events: SliceEvents, number: int, numbers: Numbers) -> None:
        rule, routes = self.program.rules[number].name, self.routes_of[number]
        if rule in self._apart:
            self._candidate_events[rule][file] += events.rows[numbers].tolist()
            return
        for route in routes:
            self._take_samples(file, events, route, numbers)
            if route in self._rendered:
                self._take_failures(events, route, numbers)
        names = [self.program.routes[route].name for route in routes]
        if not self._rendered.intersection(routes) and all(
            name in self._sampled or len(self._samples[name]) >= self._most for name in names
        ):
            self._settled.add(number)

    def _take_failures_by_parts(self, events: SliceEvents, matched: MatchedRows) -> None:
        """Record the failures of all targets whose parts show which events may fail."""
        routes, rules = self._parts.routes, self._parts.rules
        counts = matched.counts[rules]
        if not counts.any():
            return
        targets = np.repeat(np.arange(len(routes)), counts)
        shift = matched.starts[rules] - (np.cumsum(counts) - counts)
        numbers = matched.events[np.arange(len(targets)) + shift[targets]]
        unsure = self._parts.unsure(events, numbers, targets)
        numbers, targets = numbers[unsure], targets[unsure]
        for target in np.unique(targets).tolist():
            self._take_failures(events, routes[target], numbers[targets == target])

    def _count(self, events: SliceEvents, matched: MatchedRows) -> None:
        rules = np.repeat(np.arange(len(self.program.rules), dtype=np.int64), matched.counts)
        minutes = events.arrived_at[matched.events] // _MINUTE
        pairs, counts = np.unique(rules << 32 | minutes, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            rule = self.program.rules[pair >> 32].name
            if rule not in self._apart:
                self._minutes[rule][pair & 0xFFFFFFFF] += count

    def _take_samples(self, file: str, events: SliceEvents, route: int, numbers: Numbers) -> None:
        if self.program.routes[route].name in self._sampled:
            return
        samples = self._samples[self.program.routes[route].name]
        first = numbers[: self._most - len(samples)]
        if len(first):
            rows = outputs(self.program, events, route, first).to_pylist()
            of = [event_sample(events, file, number) for number in first.tolist()]
            samples += [backtested.OutputSample(each, output_of(row)) for each, row in zip(of, rows, strict=True)]

    def _take_failures(self, events: SliceEvents, route: int, numbers: Numbers) -> None:
        failed, why = failures(self.program, events, route, numbers)
        if len(failed):
            found = self._failures.setdefault(self.program.routes[route].name, _Failures(self._most))
            found.take(events, failed, why)

    def counts(self) -> backtested.CandidateCounts:
        return backtested.CandidateCounts(
            matched={rule: tuple(sorted(counts.items())) for rule, counts in self._minutes.items()},
            samples={name: tuple(samples) for name, samples in self._samples.items()},
            failures={name: each.failures() for name, each in self._failures.items()},
            candidate_events={
                rule: tuple((file, rowset.encode(rows)) for file, rows in files.items())
                for rule, files in self._candidate_events.items()
            },
        )


class _Failures:
    """Counts why outputs of a target cannot be rendered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()
        self._ids: dict[str, list[str]] = defaultdict(list)

    def take(self, events: SliceEvents, numbers: Numbers, texts: Sequence[str]) -> None:
        for number, text in zip(numbers.tolist(), texts, strict=True):
            known = text if text in self._counts or len(self._counts) < _TEXTS else ""
            self._counts[known] += 1
            if len(self._ids[known]) < self._most:
                self._ids[known].append(events.parse(number).id)

    def failures(self) -> tuple[backtested.Failure, ...]:
        return tuple(backtested.Failure(text, count, tuple(self._ids[text])) for text, count in self._counts.items())


def _text(target: Target) -> str:
    # Targets that compare equal may spell a number differently, so their outputs may differ.
    return write_document(content_of(target))


@dataclass
class _Changes:
    count: int = 0
    samples: list[backtested.Change] = field(default_factory=list)


class _Pair:
    """Collects the differences between a rule of A and a rule of B."""

    def __init__(self, one: _Candidate, other: _Candidate, a: str, b: str, most: int) -> None:
        self.a, self.b = a, b
        self._one, self._other, self._most = one, other, most
        self._numbers = one.number_of[a], other.number_of[b]
        self._both = self._gained = self._lost = 0
        self._samples: tuple[list[backtested.EventSample], list[backtested.EventSample]] = ([], [])
        self._changes: dict[str, _Changes] = defaultdict(_Changes)
        self._routes = dict(self._targets())

    def _targets(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the targets that both rules have and that may receive different outputs, each with its two routes."""
        theirs = {
            self._other.program.routes[each].target.name: each for each in self._other.routes_of[self._numbers[1]]
        }
        for route in self._one.routes_of[self._numbers[0]]:
            a = self._one.program.routes[route]
            other = theirs.get(a.target.name)
            if other is None:
                continue
            b = self._other.program.routes[other]
            if (a.program, a.rule.name, _text(a.target)) != (b.program, b.rule.name, _text(b.target)):
                yield a.target.name, (route, other)

    def take(self, file: str, events: SliceEvents, one: MatchedRows, other: MatchedRows) -> None:
        a, b = one.rows_of(self._numbers[0]), other.rows_of(self._numbers[1])
        both = np.intersect1d(a, b, assume_unique=True)
        gained, lost = np.setdiff1d(b, a, assume_unique=True), np.setdiff1d(a, b, assume_unique=True)
        self._both += len(both)
        self._gained += len(gained)
        self._lost += len(lost)
        for samples, numbers in zip(self._samples, (gained, lost), strict=True):
            samples += [event_sample(events, file, each) for each in numbers[: self._most - len(samples)].tolist()]
        for target, routes in self._routes.items() if len(both) else ():
            self._compare(file, events, target, routes, both)

    def _compare(self, file: str, events: SliceEvents, target: str, routes: tuple[int, int], both: Numbers) -> None:
        a = every_output(self._one.program, events, routes[0], both)
        b = every_output(self._other.program, events, routes[1], both)
        indices = np.flatnonzero(differ(a, b))
        changes = self._changes[target]
        changes.count += len(indices)
        for index in indices[: self._most - len(changes.samples)].tolist():
            of = event_sample(events, file, int(both[index]))
            rows = [table.slice(index, 1).to_pylist()[0] for table in (a, b)]
            changes.samples.append(backtested.Change(of, output_of(rows[0]), output_of(rows[1])))

    def counts(self) -> backtested.PairCounts:
        return backtested.PairCounts(
            both=self._both,
            gained=self._gained,
            lost=self._lost,
            gained_samples=tuple(self._samples[0]),
            lost_samples=tuple(self._samples[1]),
            changed={
                target: backtested.TargetChanges(each.count, tuple(each.samples))
                for target, each in self._changes.items()
                if each.count
            },
        )


def is_decided_by_parts(program: RouteProgram, route: int) -> bool:
    """Return whether the parts that a transform names determine whether an event may have no output."""
    each = program.routes[route]
    steps = each.program.operations
    return each.waiting is None and all(step.code in _SURE or (step.code == PART and step.path) for step in steps)


def can_fail(program: RouteProgram, route: int) -> bool:
    """Return whether a target may have no output for some event."""
    each = program.routes[route]
    return each.waiting is not None or any(step.code not in _SURE for step in each.program.operations)


class NamedParts:
    """The parts of events that the transforms of some targets name; `is_decided_by_parts` is True for each target."""

    def __init__(self, program: RouteProgram, routes: Sequence[int]) -> None:
        steps = {
            route: [step for step in program.routes[route].program.operations if step.path is not None]
            for route in routes
        }
        self.routes = [route for route, named in steps.items() if named]
        self.rules: npt.NDArray[np.int64] = program.rule_of_route[self.routes]
        number_of: dict[tuple[Step, ...], int] = {}
        for named in steps.values():
            for step in named:
                number_of.setdefault(step.path or (), len(number_of))
        self._paths = part_paths(list(number_of))
        self._width = len(number_of)
        self._named, self._required = np.zeros((2, len(self.routes), self._width), np.bool_)
        for target, route in enumerate(self.routes):
            for step in steps[route]:
                self._named[target, number_of[step.path or ()]] = True
                self._required[target, number_of[step.path or ()]] |= step.failure is not None

        self._requires: npt.NDArray[np.bool_] = np.asarray(self._required.any(axis=1))

    @property
    def is_small(self) -> bool:
        """Return whether there are few enough paths to extract all of them together."""
        return self._width <= _MAX_PATHS

    def unsure(
        self, events: SliceEvents, numbers: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which pairs of event and target (an index in `routes`) have to be rendered to find a failure."""
        found = np.zeros(len(numbers), np.bool_)
        unsure = np.flatnonzero(with_surrogates(events.texts)[numbers] | self._requires[targets])
        if not len(unsure):
            return found
        found[unsure] = self._unsure(events, numbers[unsure], targets[unsure])
        return found

    def _unsure(
        self, events: SliceEvents, numbers: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        wanted = np.zeros(len(events), np.bool_)
        wanted[numbers] = True
        rows = (np.cumsum(wanted, dtype=np.int64) - 1)[numbers]
        kinds = find_parts(events.texts, np.flatnonzero(wanted), self._paths).kind[:, : self._width]
        found = np.zeros(len(numbers), np.bool_)
        for asked, of_kind in ((self._required, kinds == MISSING), (self._named, np.isin(kinds, _UNSURE))):
            if of_kind.any():
                found |= (of_kind[rows] & asked[targets]).any(axis=1)
        return found


def with_surrogates(texts: Texts) -> npt.NDArray[np.bool_]:
    """Return which events may contain half of a surrogate pair, because they have an escape such as `\\ud83d`."""
    buffer = texts.buffer
    found = np.zeros(len(texts.start), np.bool_)
    indices = np.flatnonzero(buffer[:-3] == _BACKSLASH)
    indices = indices[(buffer[indices + 1] == _U) & (buffer[indices + 2] | _LOWER == _D)]
    indices = indices[(indices >= texts.start[0]) & (indices < texts.end[-1])] if len(found) else indices[:0]
    if len(indices):
        found[np.searchsorted(texts.start, indices, side="right") - 1] = True
    return found
