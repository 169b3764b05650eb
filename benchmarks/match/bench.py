"""Runs all measurements round by round, so that what else the machine does hits all of them alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from benchmarks.match.checks import Checks, check_route, check_rule_sets
from benchmarks.match.event_ruler import EventRuler, compile_sources, fetched_jars
from benchmarks.match.events import Size
from benchmarks.match.kernel import KernelSubject, MemorySubject, Pass
from benchmarks.match.remote import Remote
from benchmarks.match.spark import SparkSubject
from benchmarks.match.whole_route import RouteSubject
from benchmarks.match.workload import KINDS, SIZES, WARM, Workload

RULER_EVENTS: Final = 5_000
"""Event Ruler remembers nothing of events, so these few are given to it again and again."""

FIRST_EVENTS: Final = 40_000


class Key(NamedTuple):
    """What is measured: by whom, with which rules, on which events."""

    who: str  # kernel | event ruler | udf | route | whole route
    rule_set: str
    rules: int
    events: str  # 519 | 4096 | sources | arrays | keys


@dataclass
class Results:
    """What came out: the passes of each counted round, and single figures by name."""

    passes: dict[Key, list[Pass]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    megabytes: float = 0.0
    first_seconds: float = 0.0
    worker: Pass | None = None
    checks: Checks = field(default_factory=Checks)

    def rates(self, key: Key) -> list[float]:
        """Return the rates of each round."""
        return [each.rate for each in self.passes[key]]

    def mean_bytes(self, key: Key) -> float:
        """Return the mean length of the events that the kernel got."""
        passes = self.passes[key]
        return sum(each.bytes for each in passes) / sum(each.events for each in passes)

    def ratio(self, key: Key, other: Key) -> float:
        """Return how many times faster one is than another: the median over the rounds."""
        pairs = zip(self.rates(key), self.rates(other), strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


@dataclass(frozen=True)
class Subjects:
    """The processes that are measured; one of them works at a time."""

    kernel: Remote
    ruler: EventRuler
    spark: Remote
    route: Remote


def run(work: Workload) -> Results:
    """Measure everything; raises BenchError if something that is needed is missing here."""
    results = Results()
    jars = fetched_jars()
    classes = work.folder / "classes"
    classes.mkdir()
    jars = [compile_sources(jars, classes), *jars]
    with ExitStack() as stack:
        _say("starting the kernel (Numba compiles it, if that was not done before), Event Ruler and Spark")
        subjects = Subjects(
            stack.enter_context(Remote(KernelSubject)),
            stack.enter_context(EventRuler(jars)),
            stack.enter_context(Remote(SparkSubject, jars, work.folder)),
            stack.enter_context(Remote(RouteSubject, work.folder / "store")),
        )
        _say("compiling the rules, once for every matcher")
        _compile(work, subjects)
        measurements = dict(_measurements(work, subjects))
        for number in range(work.scale.rounds + 1):
            _say(f"round {number} of {work.scale.rounds}" if number else "warming up, and checking answers")
            _load(work, subjects, number)
            for key, measure in measurements.items():
                measured = measure(number)
                if number != WARM:
                    results.passes[key].append(measured)
            if number == WARM:
                check_rule_sets(work, subjects, results.checks)
                check_route(work, subjects, results.checks)
            else:
                _compile_again(work, subjects, results)
            work.end_round(number)
    _say("one worker's memory")
    _measure_memory(work, results)
    return results


def rule_sets(work: Workload) -> Iterator[tuple[str, int]]:
    """Yield every rule set that both our kernel and Event Ruler get."""
    yield from (("mixed", count) for count in work.scale.rules)
    yield from ((kind, count) for kind in KINDS for count in work.scale.rules_of_one_kind)


def hostile_sets(work: Workload) -> Iterator[Key]:
    """Yield what is made to hurt the kernel."""
    yield Key("kernel", "wildcard", 1_000, "sources")
    yield Key("kernel", "break-points", max(work.scale.rules), "519")
    yield Key("kernel", "mixed", 1_000, "arrays")
    yield Key("kernel", "conditions", 1_000, "519")
    yield Key("kernel", "many-keys", max(work.scale.rules), "keys")


def routed_sets() -> Iterator[Key]:
    """Yield what route as a whole is measured with."""
    yield Key("whole route", "mixed", 100, "519")
    yield Key("whole route", "many-matches", 100, "519")


def _compile(work: Workload, subjects: Subjects) -> None:
    for rule_set, count in rule_sets(work):
        subjects.kernel.call("compile", f"{rule_set}-{count}", work.rules(rule_set, count))
        subjects.ruler.compile(f"{rule_set}-{count}", work.rules(rule_set, count))
    for key in hostile_sets(work):
        name = f"{key.rule_set}-{key.rules}"
        subjects.kernel.call("compile", name, work.rules(key.rule_set, key.rules))
    for key in routed_sets():
        subjects.route.call("compile", f"{key.rule_set}-{key.rules}", work.rules(key.rule_set, key.rules))
    for size in SIZES:
        subjects.ruler.events(str(size), work.lines(size, RULER_EVENTS))


def _load(work: Workload, subjects: Subjects, number: int) -> None:
    for size in SIZES:
        subjects.kernel.call("events", str(size), work.events(size, number)[0])
    subjects.kernel.call("events", "sources", work.fresh_sources(number))
    subjects.kernel.call("events", "arrays", work.arrays(number))
    subjects.kernel.call("events", "keys", work.keys(number))
    subjects.route.call("events", "519", work.events(519, number)[0], work.scale.route_events)


Measure = Callable[[int], Pass]


def _measurements(work: Workload, subjects: Subjects) -> Iterator[tuple[Key, Measure]]:
    """Yield everything that a round measures, what is compared side by side."""
    for size in SIZES:
        for count in work.scale.rules:
            for who in ("kernel", "event ruler", "udf", "route"):
                key = Key(who, "mixed", count, str(size))
                yield key, _measurement(work, subjects, key)
    for kind in KINDS:
        for count in work.scale.rules_of_one_kind:
            for who in ("kernel", "event ruler"):
                key = Key(who, kind, count, "519")
                yield key, _measurement(work, subjects, key)
    for key in (*hostile_sets(work), *routed_sets()):
        yield key, _measurement(work, subjects, key)


def _measurement(work: Workload, subjects: Subjects, key: Key) -> Measure:
    scale = work.scale
    name = f"{key.rule_set}-{key.rules}"

    def kernel(number: int) -> Pass:
        return _passed(subjects.kernel.call("measure", name, key.events, scale.kernel_seconds))

    def event_ruler(number: int) -> Pass:
        seconds = scale.ruler_seconds if number != WARM else scale.warm_seconds
        return subjects.ruler.measure(name, key.events, seconds)

    def udf(number: int) -> Pass:
        files = work.heads(_size(key), number, scale.udf_events[key.rules])
        return _passed(subjects.spark.call("event_ruler", work.rules(key.rule_set, key.rules), files))

    def route(number: int) -> Pass:
        files = work.events(_size(key), number)
        return _passed(subjects.spark.call("route", work.rules(key.rule_set, key.rules), files))

    def whole_route(number: int) -> Pass:
        return _passed(subjects.route.call("measure", name, key.events))

    return {"kernel": kernel, "event ruler": event_ruler, "udf": udf, "route": route, "whole route": whole_route}[
        key.who
    ]


def _size(key: Key) -> Size:
    return 519 if key.events == "519" else 4096


def _passed(answer: object) -> Pass:
    assert isinstance(answer, Pass)
    return answer


def _compile_again(work: Workload, subjects: Subjects, results: Results) -> None:
    parsed, compiled = subjects.kernel.call("compile", "again", work.rules("mixed", 10_000))
    results.seconds["compile"].append(parsed + compiled)
    changed = subjects.kernel.call("change", "again", work.changed_rules(100))
    results.seconds["change"].append(changed)
    subjects.kernel.call("forget", "again")


def _measure_memory(work: Workload, results: Results) -> None:
    """Match fresh events in one worker; its steady rate is that of the second half of them."""
    passes = []
    with Remote(MemorySubject) as worker:
        worker.call("compile", work.rules("mixed", 10_000))
        for first in range(0, work.scale.fresh_events, FIRST_EVENTS):
            count = min(FIRST_EVENTS, work.scale.fresh_events - first)
            passes.append(_passed(worker.call("match", work.fresh(first, count))))
        results.megabytes = worker.call("megabytes")
    steady = passes[len(passes) // 2 :]
    results.worker = Pass(
        sum(each.events for each in steady), sum(each.seconds for each in steady), sum(each.matches for each in steady)
    )
    results.first_seconds = passes[0].seconds - passes[0].events / results.worker.rate


_BEGUN: Final = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _BEGUN:4.0f} s  {what}", file=sys.stderr, flush=True)  # noqa: T201
