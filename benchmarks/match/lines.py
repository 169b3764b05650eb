"""From what was measured to the lines of the table, with the goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from benchmarks.match.bench import Key, Results, hostile_sets, routed_sets
from benchmarks.match.table import Comparison, Line
from benchmarks.match.workload import KINDS, SIZES, Workload

GOALS: Final = {10: 3.0, 100: 10.0, 1_000: 40.0, 10_000: 10.0}
"""How many times Event Ruler's rate the kernel's shall be, by rules."""

MEGABYTES: Final = 400.0
FIRST_SECONDS: Final = 1.0
COMPILE_SECONDS: Final = 5.0
CHANGE_SECONDS: Final = 0.5

_NAMES: Final = {
    "kernel": "kernel",
    "event ruler": "Event Ruler 2.0.1",
    "udf": "Event Ruler, a UDF on Spark",
    "route": "kernel in Spark's workers",
    "whole route": "route",
}
_HOSTILE: Final = {
    ("wildcard", "sources"): "ever new strings at wildcards",
    ("break-points", "519"): "four break points a rule, one path",
    ("mixed", "arrays"): "arrays of 10,000 scalars",
    ("conditions", "519"): "256 conditions a rule",
    ("many-keys", "keys"): "5,000 keys, 14 an event",
}
_ROUTED: Final = {"mixed": "few matches", "many-matches": "many matches"}


def sections(work: Workload, results: Results) -> list[tuple[str, list[Line]]]:
    """Return the sections of the table."""
    found = [(f"mixed rules, events of {size:,} bytes", list(_mixed(work, results, str(size)))) for size in SIZES]
    found.append(("rules of one kind", list(_of_one_kind(work, results))))
    found.append(("kernel, made to hurt", list(_hostile(work, results))))
    found.append(("route, TEMPLATE for every match", list(_routed(results))))
    found.append(("one worker, 10,000 mixed rules", list(_worker(work, results))))
    return found


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
        yield _line(
            results,
            kernel,
            _NAMES["kernel"],
            Comparison(results.ratio(kernel, ruler), "x Event Ruler", GOALS.get(count)),
        )
        yield _line(results, ruler, _NAMES["event ruler"])
        yield _line(results, route, _NAMES["route"], Comparison(results.ratio(route, udf), "x its UDF"))
        yield _line(results, udf, _NAMES["udf"])


def _of_one_kind(work: Workload, results: Results) -> Iterator[Line]:
    for kind in KINDS:
        for count in work.scale.rules_of_one_kind:
            kernel, ruler = (Key(who, kind, count, "519") for who in ("kernel", "event ruler"))
            yield _line(
                results,
                kernel,
                f"kernel, {kind} only",
                Comparison(results.ratio(kernel, ruler), "x Event Ruler"),
                Comparison(results.ratio(kernel, Key("kernel", "mixed", count, "519")), "x mixed"),
            )
            yield _line(results, ruler, f"Event Ruler, {kind} only")


def _hostile(work: Workload, results: Results) -> Iterator[Line]:
    for key in hostile_sets(work):
        mixed = Key("kernel", "mixed", key.rules, "519")
        ratio = results.ratio(key, mixed)
        compared = [Comparison(ratio, "x mixed")]
        if key.events == "arrays":
            longer = results.mean_bytes(key) / results.mean_bytes(mixed)
            compared.append(Comparison(ratio * longer, "x mixed, by bytes"))
        yield _line(results, key, _HOSTILE[key.rule_set, key.events], *compared)


def _routed(results: Results) -> Iterator[Line]:
    for key in routed_sets():
        deliveries = max(each.matches / each.seconds for each in results.passes[key])
        yield _line(results, key, _ROUTED[key.rule_set], Comparison(deliveries, "deliveries"))


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
    figures = (
        ("its memory after them", results.megabytes, "MB", MEGABYTES),
        ("what the first 40,000 cost more", results.first_seconds, "CPU-s", FIRST_SECONDS),
        ("to compile the rules", statistics.median(results.seconds["compile"]), "CPU-s", COMPILE_SECONDS),
        ("to change 100 of them", statistics.median(results.seconds["change"]), "CPU-s", CHANGE_SECONDS),
    )
    for what, value, unit, goal in figures:
        yield Line(what, 10_000, "", comparisons=[Comparison(value, unit, goal, at_most=True)])
