"""Adds up the results of the archive's parts, and makes the report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from eventbridge.backtest.report import Hour, PairReport, Peak, RuleReport, TargetDifference, TargetReport
from eventbridge.model import rowset
from eventbridge.model.backtested import (
    CandidateCounts,
    Change,
    EventSample,
    Failure,
    Minutes,
    OutputSample,
    PairCounts,
    TargetChanges,
)
from eventbridge.model.file_detail import RoutedShare
from eventbridge.routing.job import SliceResult
from eventbridge.routing.outputs import COLUMNS, output_of, sample_of
from eventbridge.routing.share_budget import BUDGET, CROWDED
from eventbridge.routing.sql_results import EventRow
from eventbridge.rules import Rule, Target
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.protocol import Store

#: The maximum number of distinct failure messages of one target in a report; all others are counted together under "".
_MAX_FAILURE_TEXTS: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Each = TypeVar("Each")

_WHY: Final = {
    BUDGET: "the CPU budget of a budgeted rule was spent",
    CROWDED: "the CPU budget of all budgeted rules together was spent",
}
_EVENT_ROW: Final = ("event_file", "event_row", "arrived_at", "event_id", "target")


@dataclass
class LeftOut:
    """Events that were not evaluated, and why."""

    count: int = 0
    why: dict[str, None] = field(default_factory=dict)

    def add(self, count: int, reason: str) -> None:
        """Count events that were left out for one reason."""
        if count:
            self.count += count
            self.why.setdefault(reason)

    @property
    def text(self) -> str:
        """Return every reason."""
        return "; ".join(self.why)


class CandidateTally:
    """The results of a candidate so far; at most `samples` of each kind are kept."""

    def __init__(self, samples: int) -> None:
        self._most = samples
        self._minutes: dict[str, Counter[int]] = defaultdict(Counter)
        self._samples: dict[str, list[OutputSample]] = defaultdict(list)
        self._failures: dict[str, dict[str, Failure]] = defaultdict(dict)
        self.left_out: dict[str, LeftOut] = defaultdict(LeftOut)

    def add(self, counts: CandidateCounts) -> None:
        """Add the result for a part of the archive."""
        for rule, minutes in counts.matched.items():
            self._minutes[rule].update(dict(minutes))
        for name, samples in counts.samples.items():
            _extend(self._samples[name], samples, self._most)
        for name, failures in counts.failures.items():
            for each in failures:
                self._fail(self._failures[name], each)

    def sampled(self) -> tuple[str, ...]:
        """Return the targets with enough samples."""
        return tuple(sorted(name for name, samples in self._samples.items() if len(samples) >= self._most))

    def _fail(self, known: dict[str, Failure], found: Failure) -> None:
        text = found.text if found.text in known or len(known) < _MAX_FAILURE_TEXTS else ""
        before = known.get(text, Failure(text, 0, ()))
        known[text] = Failure(text, before.count + found.count, (*before.event_ids, *found.event_ids)[: self._most])

    def report(self, rule: Rule, landed: Mapping[int, int], seconds: float) -> RuleReport:
        """Return the report of a rule; `landed` counts all events by minute in a time range of `seconds` seconds."""
        minutes = self._minutes.get(rule.name, Counter())
        matched, left_out = minutes.total(), self.left_out.get(rule.name, LeftOut())
        return RuleReport(
            rule=rule.name,
            version=rule.version,
            matched=matched,
            left_out=left_out.count,
            left_out_why=left_out.text,
            rate_per_second=matched / seconds,
            largest_minute=largest_minute(minutes),
            hours=tuple(_hours_of(landed, minutes)),
            targets=tuple(self._target(rule, target, matched) for target in sorted(rule.targets)),
        )

    def _target(self, rule: Rule, target: str, matched: int) -> TargetReport:
        name = f"{rule.name}/{target}"
        failures = sorted(self._failures.get(name, {}).values(), key=lambda each: (-each.count, each.text))
        failed = sum(each.count for each in failures)
        return TargetReport(target, matched - failed, failed, tuple(failures), tuple(self._samples.get(name, ())))


@dataclass
class PairTally:
    """The differences of a rule of A and a rule of B so far; at most `most` samples of each kind are kept."""

    most: int
    both: int = 0
    gained: int = 0
    lost: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    gained_samples: list[EventSample] = field(default_factory=list)
    lost_samples: list[EventSample] = field(default_factory=list)
    changed: Counter[str] = field(default_factory=Counter)
    changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))

    def add(self, counts: PairCounts) -> None:
        """Add the result for a part of the archive."""
        self.both += counts.both
        self.gained += counts.gained
        self.lost += counts.lost
        _extend(self.gained_samples, counts.gained_samples, self.most)
        _extend(self.lost_samples, counts.lost_samples, self.most)
        for target, found in counts.changed.items():
            self.changed[target] += found.count
            _extend(self.changes[target], found.samples, self.most)

    def report(self, a: Rule, b: Rule) -> PairReport:
        """Return the differences of rule `b` from `a`."""
        return PairReport(
            a=a.name,
            b=b.name,
            a_version=a.version,
            b_version=b.version,
            both=self.both,
            gained=self.gained,
            lost=self.lost,
            left_out=self.left_out.count,
            left_out_why=self.left_out.text,
            gained_samples=tuple(self.gained_samples),
            lost_samples=tuple(self.lost_samples),
            targets=tuple(self._targets(a.targets, b.targets)),
        )

    def _targets(self, a: Mapping[str, Target], b: Mapping[str, Target]) -> Iterator[TargetDifference]:
        for name in sorted({*a, *b}):
            only_in = "" if name in a and name in b else "A" if name in a else "B"
            yield TargetDifference(name, only_in, self.changed[name], tuple(self.changes.get(name, ())))


def largest_minute(minutes: Mapping[int, int]) -> Peak | None:
    """Return the first minute with the most events; None if there are none."""
    if not minutes:
        return None
    at = max(sorted(minutes), key=lambda minute: minutes[minute])
    return Peak(_EPOCH + timedelta(minutes=at), minutes[at])


def _hours_of(landed: Mapping[int, int], matched: Mapping[int, int]) -> Iterator[Hour]:
    """Yield the hours in which events were archived, oldest first."""
    every, some = _sum_by_hour(landed), _sum_by_hour(matched)
    for hour in sorted(every):
        yield Hour(_EPOCH + timedelta(hours=hour), every[hour], some[hour])


def _sum_by_hour(minutes: Mapping[int, int]) -> Counter[int]:
    """Return counts by minute as counts by hour since 1970."""
    found: Counter[int] = Counter()
    for minute, count in minutes.items():
        found[minute // 60] += count
    return found


def _minutes_of(times: Counter[int]) -> Minutes:
    """Return counts of times, in microseconds since 1970, as counts by minute."""
    found: Counter[int] = Counter()
    for time, count in times.items():
        found[time // 60_000_000] += count
    return tuple(sorted(found.items()))


def _extend(known: list[Each], found: tuple[Each, ...], limit: int) -> None:
    known += found[: max(0, limit - len(known))]


@dataclass
class ShareOutcome:
    """The result of a rule for the events that its pattern matches; `left` events were not evaluated, see `why`."""

    matched: dict[EventRow, dict[str, Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    arrived_at: dict[EventRow, int] = field(default_factory=dict)
    event_ids: dict[EventRow, str] = field(default_factory=dict)
    left: set[EventRow] = field(default_factory=set)
    why: str = ""


def outcome_of(store: Store, result: SliceResult) -> ShareOutcome:
    """Return the result of a share, read from its delivery file."""
    share = result.detail
    assert isinstance(share, RoutedShare), "a share was asked for"
    found = ShareOutcome(left=event_rows_of(share.left), why=share.error or _WHY.get(share.reason, share.reason))
    if result.path is None:
        return found
    table = read_table(store, result.path, [*_EVENT_ROW, *COLUMNS])
    for row in table.to_pylist():
        event_row = (row["event_file"], row["event_row"])
        found.matched[event_row][row["target"]] = {name: row[name] for name in COLUMNS}
        found.arrived_at[event_row] = (row["arrived_at"] - _EPOCH) // timedelta(microseconds=1)
        found.event_ids[event_row] = row["event_id"]
    return found


def event_rows_of(files: Iterable[tuple[str, str]]) -> set[EventRow]:
    """Return the rows of pairs of file and row set."""
    return {(file, row) for file, rows in files for row in rowset.decode(rows)}


def counts_of(store: Store, rule: Rule, outcome: ShareOutcome, max_samples: int) -> CandidateCounts:
    """Return the counts of a rule's result, with at most `max_samples` samples of each kind."""
    event_rows = list(outcome.matched)  # as the share named them: oldest first
    events = _event_samples(store, event_rows[:max_samples])
    samples = {
        f"{rule.name}/{target}": tuple(
            OutputSample(events[event_row], output_of(outcome.matched[event_row][target]))
            for event_row in event_rows[:max_samples]
        )
        for target in rule.targets
    }
    return CandidateCounts(
        matched={rule.name: _minutes_of(Counter(outcome.arrived_at[event_row] for event_row in event_rows))},
        samples=samples,
        failures={
            f"{rule.name}/{target}": _failures(outcome, event_rows, target, max_samples) for target in rule.targets
        },
    )


def _failures(
    outcome: ShareOutcome, event_rows: Sequence[EventRow], target: str, max_samples: int
) -> tuple[Failure, ...]:
    ids: dict[str, list[str]] = defaultdict(list)
    for event_row in event_rows:
        text = outcome.matched[event_row][target]["failure"]
        if text is not None:
            ids[text].append(outcome.event_ids[event_row])
    return tuple(Failure(text, len(each), tuple(each[:max_samples])) for text, each in ids.items())


def compare_outcomes(
    store: Store, rules: tuple[Rule, Rule], outcomes: tuple[ShareOutcome, ShareOutcome], max_samples: int
) -> tuple[PairCounts, int]:
    """Return the differences of two results for the same events, and the number of events that one did not evaluate."""
    left = outcomes[0].left | outcomes[1].left
    first, second = (each.matched for each in outcomes)
    a, b = first.keys() - left, second.keys() - left
    both = a & b
    gained, lost = (
        [event_row for event_row in each if event_row in those] for each, those in ((second, b - a), (first, a - b))
    )
    changed = {
        target: [
            event_row
            for event_row in first
            if event_row in both and outcomes[0].matched[event_row][target] != outcomes[1].matched[event_row][target]
        ]
        for target in rules[0].targets
        if target in rules[1].targets
    }
    shown = {event_row for event_rows in (gained, lost, *changed.values()) for event_row in event_rows[:max_samples]}
    events = _event_samples(store, sorted(shown))
    counts = PairCounts(
        both=len(both),
        gained=len(gained),
        lost=len(lost),
        gained_samples=tuple(events[event_row] for event_row in gained[:max_samples]),
        lost_samples=tuple(events[event_row] for event_row in lost[:max_samples]),
        changed={
            target: TargetChanges(
                len(event_rows),
                tuple(
                    _change(events[event_row], event_row, target, outcomes) for event_row in event_rows[:max_samples]
                ),
            )
            for target, event_rows in changed.items()
            if event_rows
        },
    )
    return counts, len(left)


def _change(of: EventSample, event_row: EventRow, target: str, outcomes: tuple[ShareOutcome, ShareOutcome]) -> Change:
    a, b = (output_of(each.matched[event_row][target]) for each in outcomes)
    return Change(of, a, b)


def _event_samples(store: Store, event_rows: Sequence[EventRow]) -> dict[EventRow, EventSample]:
    """Return archived events as samples."""
    by_file: dict[str, list[int]] = defaultdict(list)
    for file, row in event_rows:
        by_file[file].append(row)
    found = {}
    for file, rows in by_file.items():
        table = read_rows(store, file, rowset.encode(rows), ["event_id", "source", "arrived_at", "body"])
        for row, event in zip(sorted(rows), table.to_pylist(), strict=True):
            arrived_at = (event["arrived_at"] - _EPOCH) // timedelta(microseconds=1)
            found[file, row] = sample_of(file, row, event["event_id"], event["source"], arrived_at, event["body"])
    return found
