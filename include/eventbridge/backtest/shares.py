"""Reads the results of rules that are routed separately, as budgeted ones are, and compares them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from eventbridge.backtest.tally import minutes_of
from eventbridge.model import rowset
from eventbridge.model.backtested import (
    CandidateCounts,
    Change,
    EventSample,
    Failure,
    OutputSample,
    PairCounts,
    TargetChanges,
)
from eventbridge.model.file_detail import RoutedShare
from eventbridge.routing.budgeted_share import BUDGET
from eventbridge.routing.job import SliceResult
from eventbridge.routing.outputs import COLUMNS, output_of, sample_of
from eventbridge.routing.share_turns import CROWDED
from eventbridge.rules import Rule
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.protocol import Store

#: Where an archived event lies: file and row.
Place = tuple[str, int]

_WHY: Final = {
    BUDGET: "the CPU budget of a budgeted rule was spent",
    CROWDED: "the CPU budget of all budgeted rules together was spent",
}
_PLACE: Final = ("event_file", "event_row", "arrived_at", "event_id", "target")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class ShareOutcome:
    """The result of a rule for the events that its pattern matches; `left` events were not evaluated, see `why`."""

    matched: dict[Place, dict[str, Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    arrived_at: dict[Place, int] = field(default_factory=dict)
    event_ids: dict[Place, str] = field(default_factory=dict)
    left: set[Place] = field(default_factory=set)
    why: str = ""


def outcome_of(store: Store, result: SliceResult) -> ShareOutcome:
    """Return the result of a share, read from its delivery file."""
    share = result.detail
    assert isinstance(share, RoutedShare), "a share was asked for"
    found = ShareOutcome(left=places_of(share.left), why=share.error or _WHY.get(share.reason, share.reason))
    if result.path is None:
        return found
    table = read_table(store, result.path, [*_PLACE, *COLUMNS])
    for row in table.to_pylist():
        place = (row["event_file"], row["event_row"])
        found.matched[place][row["target"]] = {name: row[name] for name in COLUMNS}
        found.arrived_at[place] = (row["arrived_at"] - _EPOCH) // timedelta(microseconds=1)
        found.event_ids[place] = row["event_id"]
    return found


def places_of(files: Iterable[tuple[str, str]]) -> set[Place]:
    """Return the places of pairs of file and row set."""
    return {(file, row) for file, rows in files for row in rowset.decode(rows)}


def counts_of(store: Store, rule: Rule, outcome: ShareOutcome, most: int) -> CandidateCounts:
    """Return the counts of a rule's result, with at most `samples` samples of each kind."""
    places = list(outcome.matched)  # as the share named them: oldest first
    events = event_samples(store, places[:most])
    samples = {
        f"{rule.name}/{target}": tuple(
            OutputSample(events[place], output_of(outcome.matched[place][target])) for place in places[:most]
        )
        for target in rule.targets
    }
    return CandidateCounts(
        matched={rule.name: minutes_of(Counter(outcome.arrived_at[place] for place in places))},
        samples=samples,
        failures={f"{rule.name}/{target}": _failures(outcome, places, target, most) for target in rule.targets},
    )


def _failures(outcome: ShareOutcome, places: Sequence[Place], target: str, most: int) -> tuple[Failure, ...]:
    ids: dict[str, list[str]] = defaultdict(list)
    for place in places:
        text = outcome.matched[place][target]["failure"]
        if text is not None:
            ids[text].append(outcome.event_ids[place])
    return tuple(Failure(text, len(each), tuple(each[:most])) for text, each in ids.items())


def compared(
    store: Store, rules: tuple[Rule, Rule], outcomes: tuple[ShareOutcome, ShareOutcome], most: int
) -> tuple[PairCounts, int]:
    """Return where two results for the same events differ, and how many events one of them did not evaluate."""
    left = outcomes[0].left | outcomes[1].left
    first, second = (each.matched for each in outcomes)
    a, b = first.keys() - left, second.keys() - left
    both = a & b
    gained, lost = ([place for place in each if place in those] for each, those in ((second, b - a), (first, a - b)))
    changed = {
        target: [
            place
            for place in first
            if place in both and outcomes[0].matched[place][target] != outcomes[1].matched[place][target]
        ]
        for target in rules[0].targets
        if target in rules[1].targets
    }
    shown = {place for places in (gained, lost, *changed.values()) for place in places[:most]}
    events = event_samples(store, sorted(shown))
    counts = PairCounts(
        both=len(both),
        gained=len(gained),
        lost=len(lost),
        gained_samples=tuple(events[place] for place in gained[:most]),
        lost_samples=tuple(events[place] for place in lost[:most]),
        changed={
            target: TargetChanges(
                len(places), tuple(_change(events[place], place, target, outcomes) for place in places[:most])
            )
            for target, places in changed.items()
            if places
        },
    )
    return counts, len(left)


def _change(of: EventSample, place: Place, target: str, outcomes: tuple[ShareOutcome, ShareOutcome]) -> Change:
    a, b = (output_of(each.matched[place][target]) for each in outcomes)
    return Change(of, a, b)


def event_samples(store: Store, places: Sequence[Place]) -> dict[Place, EventSample]:
    """Return archived events as samples."""
    by_file: dict[str, list[int]] = defaultdict(list)
    for file, row in places:
        by_file[file].append(row)
    found = {}
    for file, rows in by_file.items():
        table = read_rows(store, file, rowset.encode(rows), ["event_id", "source", "arrived_at", "body"])
        for row, event in zip(sorted(rows), table.to_pylist(), strict=True):
            arrived_at = (event["arrived_at"] - _EPOCH) // timedelta(microseconds=1)
            found[file, row] = sample_of(file, row, event["event_id"], event["source"], arrived_at, event["body"])
    return found
