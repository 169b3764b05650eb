"""Runs all measurements round by round, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from benchmarks.match.checks import check_route, check_rule_sets
from benchmarks.match.event_ruler import EventRuler, compile_sources, fetched_jars
from benchmarks.match.events import Size
from benchmarks.match.kernel import KernelSubject, Pass
from benchmarks.match.remote import Remote
from benchmarks.match.results import Results
from benchmarks.match.sets import Key, hostile_sets, profiled_sets, routed_sets, rule_sets, slow_sets
from benchmarks.match.spark import SparkSubject
from benchmarks.match.whole_route import RouteSubject
from benchmarks.match.worker import Memory, WorkerSubject, fresh_worker
from benchmarks.match.workload import KINDS, SIZES, WARM, Workload

RULER_EVENTS: Final = 5_000
"""Event Ruler remembers nothing of events, so these few are given to it again and again."""

FIRST_EVENTS: Final = 40_000

_WORKER_RULES: Final = 10_000
_FRESH_RULES: Final = 100


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
        _print_line("starting the kernel (Numba compiles it, if that was not done before), Event Ruler and Spark")
        subjects = Subjects(
            stack.enter_context(Remote(KernelSubject)),
            stack.enter_context(EventRuler(jars)),
            stack.enter_context(Remote(SparkSubject, jars, work.folder)),
            stack.enter_context(Remote(RouteSubject, work.folder / "store")),
        )
        _print_line("compiling the rules, once for every matcher")
        _compile(work, subjects)
        frozen = _freeze(work, subjects)
        measurements = dict(_measurements(work, subjects))
        for number in range(work.scale.rounds + 1):
            _print_line(f"round {number} of {work.scale.rounds}" if number else "warming up")
            _load(work, subjects, number)
            # Here, and between all that is measured: a worker that ended would compile its rules under the clock.
            for key, measure in measurements.items():
                if key.who == "kernel":
                    subjects.spark.call("stay")
                measured = measure(number)
                if number != WARM:
                    results.passes[key].append(measured)
            if number == WARM:
                _print_line("checking results")
                check_rule_sets(work, subjects, results.checks)
                subjects.spark.call("stay")
                check_route(work, subjects, results.checks)
            _measure_shares(work, subjects, results, number)
            _measure_workers(work, subjects, frozen, results, number)
            work.end_round(number)
    _print_line("one worker's memory")
    _measure_memory(work, frozen, results)
    _print_line("done")
    return results


def _compile(work: Workload, subjects: Subjects) -> None:
    sets = [*rule_sets(work), *((key.rule_set, key.rules) for key in (*hostile_sets(work), *slow_sets(work)))]
    for rule_set, count in sets:
        work.rules(rule_set, count)
    # None of it is measured, so both work at a time.
    with ThreadPoolExecutor(1) as pool:
        compiled = pool.submit(_compile_event_ruler, work, subjects)
        for rule_set, count in dict.fromkeys(sets):
            subjects.kernel.call("compile", f"{rule_set}-{count}", work.rules(rule_set, count))
        for key in routed_sets():
            subjects.route.call("compile", _name(key), work.rules(key.rule_set, key.rules))
        compiled.result()


def _compile_event_ruler(work: Workload, subjects: Subjects) -> None:
    for rule_set, count in rule_sets(work):
        subjects.ruler.compile(f"{rule_set}-{count}", work.rules(rule_set, count))
    for size in SIZES:
        subjects.ruler.events(str(size), work.lines(size, RULER_EVENTS))


def _load(work: Workload, subjects: Subjects, number: int) -> None:
    for size in SIZES:
        subjects.kernel.call("events", str(size), work.events(size, number))
    subjects.kernel.call("events", "sources", [work.fresh_sources(number)])
    subjects.kernel.call("events", "profile", [work.profiled(number)])
    for name in sorted({key.events for key in (*hostile_sets(work), *slow_sets(work))} - {"519", "sources"}):
        subjects.kernel.call("events", name, [work.hard(name, number)])
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
    for key in (*hostile_sets(work), *slow_sets(work), *routed_sets()):
        yield key, _measurement(work, subjects, key)


def _measurement(work: Workload, subjects: Subjects, key: Key) -> Measure:
    scale = work.scale
    name = _name(key)

    def kernel(number: int) -> Pass:
        return _expect(Pass, subjects.kernel.call("measure", name, key.events, scale.kernel_seconds))

    def event_ruler(number: int) -> Pass:
        seconds = scale.ruler_seconds if number != WARM else scale.warm_seconds
        return subjects.ruler.measure(name, key.events, seconds)

    def udf(number: int) -> Pass:
        files = work.heads(_size(key), number, scale.udf_events[key.rules])
        return _expect(Pass, subjects.spark.call("event_ruler", work.rules(key.rule_set, key.rules), files))

    def route(number: int) -> Pass:
        files = work.events(_size(key), number)
        return _expect(Pass, subjects.spark.call("route", work.rules(key.rule_set, key.rules), files))

    def whole_route(number: int) -> Pass:
        return _expect(Pass, subjects.route.call("measure", name, key.events, work.routed_events(key.rule_set)))

    def whole_route_on_spark(number: int) -> Pass:
        asked = subjects.route.call("asked", name, key.events, work.routed_events(key.rule_set))
        return _expect(Pass, subjects.spark.call("whole_route", asked))

    return {
        "kernel": kernel,
        "event ruler": event_ruler,
        "udf": udf,
        "route": route,
        "whole route": whole_route,
        "whole route on Spark": whole_route_on_spark,
    }[key.who]


def _name(key: Key) -> str:
    return f"{key.rule_set}-{key.rules}"


def _size(key: Key) -> Size:
    return 519 if key.events == "519" else 4096


_T = TypeVar("_T")


def _expect(kind: type[_T], response: Any) -> _T:
    assert isinstance(response, kind)
    return response


def _measure_shares(work: Workload, subjects: Subjects, results: Results, number: int) -> None:
    for count in profiled_sets(work):
        found = subjects.kernel.call("shares", f"mixed-{count}", "profile")
        if number != WARM:
            results.shares[count].append(found)


class _Frozen(NamedTuple):
    """The store's URI, and the hashes of a worker's rule set and of the one that it is changed to."""

    store_uri: str
    rules: str
    changed: str


def _freeze(work: Workload, subjects: Subjects) -> _Frozen:
    uri, rules = subjects.route.call("compile", "worker", work.rules("mixed", _WORKER_RULES))
    _, changed = subjects.route.call("compile", "changed", work.changed_rules(_WORKER_RULES))
    return _Frozen(uri, rules, changed)


def _measure_workers(work: Workload, subjects: Subjects, frozen: _Frozen, results: Results, number: int) -> None:
    """Measure what a rule set, a changed one and a fresh process cost; in a new process every time."""
    with Remote(WorkerSubject, frozen.store_uri) as worker:
        found = {"compile": worker.call("take", frozen.rules), "change": worker.call("take", frozen.changed)}
    asked = subjects.route.call("asked", f"mixed-{_FRESH_RULES}", "519", work.scale.route_events)
    fresh = fresh_worker(asked)
    found |= {"ready": fresh.cpu_seconds, "ready, clock": fresh.seconds, "forked from": fresh.forked_from}
    if number != WARM:
        for name, seconds in found.items():
            results.seconds[name].append(seconds)


def _measure_memory(work: Workload, frozen: _Frozen, results: Results) -> None:
    """Match fresh events in one worker; its steady rate is that of the second half of them."""
    passes = []
    with Remote(WorkerSubject, frozen.store_uri) as worker:
        taken_along, ready = worker.call("taken_along"), worker.call("megabytes")
        worker.call("take", frozen.rules)
        with_rules = worker.call("megabytes")
        for first in range(0, work.scale.fresh_events, FIRST_EVENTS):
            count = min(FIRST_EVENTS, work.scale.fresh_events - first)
            passes.append(_expect(Pass, worker.call("match", work.fresh(first, count))))
        results.memory = Memory(taken_along, ready, with_rules, worker.call("megabytes"))
    steady = passes[len(passes) // 2 :]
    results.worker = Pass(
        sum(each.events for each in steady), sum(each.seconds for each in steady), sum(each.matches for each in steady)
    )
    results.first_seconds = passes[0].seconds - passes[0].events / results.worker.rate


_BEGUN: Final = time.monotonic()


def _print_line(what: str) -> None:
    print(f"{time.monotonic() - _BEGUN:4.0f} s  {what}", file=sys.stderr, flush=True)  # noqa: T201
