"""Converts measurements to the lines of the table, with the goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.match import goals
from benchmarks.match.results import Results
from benchmarks.match.sets import Key, hostile_sets, routed_sets, slow_sets
from benchmarks.match.table import RATE, Comparison, Line, Sections
from benchmarks.match.workload import CHANGED, KINDS, OBJECTS, SIZES, Workload

_NAMES: Final = {
    "kernel": "kernel",
    "event ruler": "Event Ruler 2.0.1",
    "udf": "Event Ruler, a UDF on Spark",
    "route": "kernel in Spark's workers",
    "whole route": "in one process",
    "whole route on Spark": "on Spark",
}
_HARD: Final = {
    ("wildcard", "sources"): "ever new strings at wildcards",
    ("break-points", "519"): "four break points a rule, one path",
    ("mixed", "arrays"): "arrays of 10,000 scalars",
    ("conditions", "519"): "256 conditions a rule",
    ("keys-100", "keys-100"): "100 keys, 14 an event",
    ("keys-1000", "keys-1000"): "1,000 keys, 14 an event",
    ("keys-5000", "keys-5000"): "5,000 keys, 14 an event",
    ("regex-type", "519"): "regex, strings seen before",
    ("regex-subject", "519"): "regex, ever new strings",
    ("common-signs", "519"): "wildcards with nothing rare in them",
    ("orders", "orders"): "arrays inside arrays",
    ("objects", "objects"): f"an array of {OBJECTS:,} objects",
}
_LONG: Final = ("arrays", "objects")
_ROUTED: Final = {"mixed": "few matches", "many-matches": "many matches"}


def sections(work: Workload, results: Results) -> Sections:
    """Return the sections of the table."""
    short, long = SIZES
    return [
        (f"mixed rules, events of {short:,} bytes", list(_mixed(work, results, str(short)))),
        (
            f"mixed rules, events of {long:,} bytes, beside the goals for {short}",
            list(_mixed(work, results, str(long))),
        ),
        ("rules of one kind", list(_of_one_kind(work, results))),
        ("kernel, made to hurt", list(_hostile(work, results))),
        ("kernel, where it is slow, or might be", list(_slow(work, results))),
        ("route as a whole, TEMPLATE for every match", list(_routed(results))),
        ("one worker", list(_worker(work, results))),
    ]


def _line(results: Results, key: Key, what: str, *comparisons: Comparison) -> Line:
    passes = results.passes[key]
    matches = sum(each.matches for each in passes) / sum(each.events for each in passes)
    size = int(key.events) if key.events.isdigit() else results.mean_bytes(key)
    return Line(what, key.rules, f"{size:,.0f}", results.rates(key), matches, comparisons)


def _mixed(work: Workload, results: Results, size: str) -> Iterator[Line]:
    for count in work.scale.rules:
        kernel, ruler, udf, route = (
            Key(who, "mixed", count, size) for who in ("kernel", "event ruler", "udf", "route")
        )
        times = Comparison(results.ratio(kernel, ruler), "x Event Ruler", goals.TIMES_EVENT_RULER.get(count))
        yield _line(results, kernel, _NAMES["kernel"], *_rate(results, kernel, goals.KERNEL), times)
        yield _line(results, ruler, _NAMES["event ruler"])
        times = Comparison(results.ratio(route, udf), "x its UDF")
        yield _line(results, route, _NAMES["route"], *_rate(results, route, goals.ROUTE), times)
        yield _line(results, udf, _NAMES["udf"])


def _rate(results: Results, key: Key, wanted: dict[int, int]) -> Iterator[Comparison]:
    """Yield the rate beside its goal and its floor, which are for the short events."""
    if key.events == str(SIZES[0]):
        yield Comparison(results.rate(key), RATE, wanted.get(key.rules), floor=goals.FLOORS[key.who].get(key.rules))


def _of_one_kind(work: Workload, results: Results) -> Iterator[Line]:
    for kind in KINDS:
        for count in work.scale.rules_of_one_kind:
            kernel, ruler = (Key(who, kind, count, "519") for who in ("kernel", "event ruler"))
            yield _line(
                results,
                kernel,
                f"kernel, {kind} only",
                Comparison(results.ratio(kernel, ruler), "x Event Ruler"),
                _of_mixed(results, kernel, goals.OF_MIXED),
            )
            yield _line(results, ruler, f"Event Ruler, {kind} only")


def _hostile(work: Workload, results: Results) -> Iterator[Line]:
    for key in hostile_sets(work):
        yield _hard(results, key, goals.OF_MIXED)


def _slow(work: Workload, results: Results) -> Iterator[Line]:
    for key in slow_sets(work):
        yield _hard(results, key, None)


def _hard(results: Results, key: Key, goal: float | None) -> Line:
    compared = [_of_mixed(results, key, goal)]
    if key.events in _LONG:
        longer = results.mean_bytes(key) / results.mean_bytes(_mixed_key(key))
        compared.append(Comparison(compared[0].value * longer, "x mixed, by bytes", goal))
    return _line(results, key, _HARD[key.rule_set, key.events], *compared)


def _of_mixed(results: Results, key: Key, goal: float | None) -> Comparison:
    return Comparison(results.ratio(key, _mixed_key(key)), "x mixed", goal)


def _mixed_key(key: Key) -> Key:
    return Key("kernel", "mixed", key.rules, "519")


def _routed(results: Results) -> Iterator[Line]:
    for key in routed_sets():
        deliveries = statistics.median(each.matches / each.seconds for each in results.passes[key])
        few = key.rule_set == "mixed"
        compared = (
            Comparison(results.rate(key), RATE, goals.WHOLE_ROUTE_EVENTS if few else None),
            Comparison(deliveries, "deliveries", None if few else goals.WHOLE_ROUTE_DELIVERIES),
        )
        what = f"{_ROUTED[key.rule_set]}, {_NAMES[key.who]}"
        yield _line(results, key, what, *(compared if few else compared[1:]))


def _worker(work: Workload, results: Results) -> Iterator[Line]:
    worker = results.worker
    assert worker is not None, "it is measured last"
    yield Line(
        f"matching {work.scale.fresh_events:,} fresh events",
        10_000,
        "519",
        [worker.rate],
        worker.matches / worker.events,
    )
    seconds = {name: statistics.median(values) for name, values in results.seconds.items()}
    memory = results.memory
    figures: Sequence[tuple[str, int, Sequence[Comparison]]] = (
        (
            "its memory after them",
            10_000,
            (
                _at_most(memory.after_events, "MB", goals.MEGABYTES),
                Comparison(memory.with_rules, "MB before the first event"),
                Comparison(memory.ready, "MB before the rules"),
                Comparison(memory.taken_along, "MB are not counted"),
            ),
        ),
        (
            "what the first 40,000 cost more",
            10_000,
            [_at_most(results.first_seconds, "CPU-s", goals.FIRST_SECONDS)],
        ),
        ("a new rule set, from its file", 10_000, [_at_most(seconds["compile"], "CPU-s", goals.COMPILE_SECONDS)]),
        (f"the same, {CHANGED} rules changed", 10_000, [_at_most(seconds["change"], "CPU-s", goals.CHANGE_SECONDS)]),
        (
            "a fresh worker, ready",
            100,
            (
                _at_most(seconds["ready"], "CPU-s", goals.READY_SECONDS),
                Comparison(seconds["ready, clock"], "s by the clock"),
                Comparison(seconds["forked from"], "CPU-s before the fork"),
            ),
        ),
    )
    for what, rules, compared in figures:
        yield Line(what, rules, "", comparisons=compared)


def _at_most(value: float, unit: str, goal: float) -> Comparison:
    return Comparison(value, unit, goal, at_most=True)
