"""`make bench-backtest`: the cost of a backtest, compared with reading and matching the same events.

The archive contains the events of `bench-match`, as `buffer` lands them. The candidate is the mixed rules of
`bench-match`, each with a TEMPLATE for its target. Both passes run in one local Spark with two cores, and alternate
round by round. CPU-seconds are those of all processes: driver, JVM and Python workers. A short warm-up is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.archive import Archived, archive_batch, record
from benchmarks.bench_site import BUS, Site, measured, site
from benchmarks.match import rules as rule_sets
from benchmarks.match.backtested import BacktestSubject
from benchmarks.match.events import make_events
from benchmarks.match.kernel import Pass, write_rules
from benchmarks.match.remote import Remote
from benchmarks.match.whole_route import buffer_table, rule_of
from rich.console import Console
from rich.table import Table

from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.rule_sets import freeze_rules

#: The maximum CPU of a backtest, as a multiple of that of reading and matching.
GOAL: Final = 1.5

#: The number of events in a landed file and in a batch, with the product's settings.
_FILE, _BATCH = 10_000, 50_000
#: The number of events for a Spark task that reads and matches: the maximum for a part of a backtest.
_TASK = 100_000
_BETWEEN = timedelta(seconds=15)


class Timed(NamedTuple):
    """What one pass cost: CPU in it, and seconds of wall clock."""

    cost: Pass
    wall: float


def main() -> int:
    """Measure and print the table; 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000, help="archived events (default: 10000000)")
    parser.add_argument("--rules", type=int, default=100, help="number of mixed rules in the candidate (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="alternating passes of each kind (default: 3)")
    options = parser.parse_args()
    with site() as installation:
        begin = datetime.now(UTC) - timedelta(days=1)
        patterns = rule_sets.mixed(options.rules)
        rules = {rule.name: rule for rule in (rule_of(f"rule-{n:05d}", each) for n, each in enumerate(patterns))}
        frozen = RuleSet(buses={BUS: Bus(name=BUS)}, rules=rules)
        _print_line(f"making an archive of {options.events:,} events")
        paths = measured(lambda: _archive(installation, frozen, begin, options.events)).result
        file = write_rules(installation.folder / "candidate.rules", patterns)
        found = _measure(installation, file, paths, begin, options.rounds)
    return 0 if _show(found, options) else 1


def _archive(installation: Site, rules: RuleSet, begin: datetime, events: int) -> list[str]:
    """Put so many events into store and ledger, in batches one after the other; return where their files lie."""
    with closing(installation.open()) as runtime:
        made = list(_batches(runtime, freeze_rules(runtime.store, rules), begin, events))
        record(runtime, made)
    return [path for batch in made for path in batch.paths]


def _batches(runtime: Runtime, rule_set: str, begin: datetime, events: int) -> Iterator[Archived]:
    for number, first in enumerate(range(0, events, _BATCH)):
        bodies = make_events(min(_BATCH, events - first), block=number)
        at = begin + number * _BETWEEN
        starts = range(0, len(bodies), _FILE)
        tables = [buffer_table(bodies[start : start + _FILE], first + start, at) for start in starts]
        yield archive_batch(runtime, rule_set, at, tables)


def _measure(
    installation: Site, rules: Path, paths: Sequence[str], begin: datetime, rounds: int
) -> dict[str, list[Timed]]:
    files = [installation.folder / "home" / "store" / path for path in paths]
    found: dict[str, list[Timed]] = {"read and match": [], "backtest": []}
    (installation.folder / "spark").mkdir()
    with Remote(BacktestSubject, installation, installation.folder / "spark", rules) as spark:
        _print_line("warming up")
        few = files[: _BATCH // _FILE]
        spark.call("route", rules, few, len(few))
        spark.call("backtest", begin, begin + _BETWEEN)
        for number in range(rounds):
            _print_line(f"round {number + 1} of {rounds}")
            tasks = -(-len(files) * _FILE // _TASK)
            found["read and match"].append(_timed(spark, "route", rules, files, tasks))
            found["backtest"].append(_timed(spark, "backtest", begin, datetime.now(UTC)))
    for cost in {each.cost.events for timed in found.values() for each in timed}:
        _print_line(f"{cost:,} events read in a pass")
    matches = {each.cost.matches for timed in found.values() for each in timed}
    if len(matches) != 1:
        raise RuntimeError(f"the passes found different numbers of matches: {sorted(matches)}")
    return found


def _timed(spark: Remote, method: str, *arguments: object) -> Timed:
    began = time.perf_counter()
    cost: Pass = spark.call(method, *arguments)
    return Timed(cost, time.perf_counter() - began)


def _show(found: dict[str, list[Timed]], options: argparse.Namespace) -> bool:
    rounds = f"{options.rounds} round{'s' if options.rounds > 1 else ''}"
    table = Table(title=f"{options.events:,} archived events of 519 bytes, {options.rules:,} mixed rules, {rounds}")
    for title in ("what", "matches", "CPU s", "wall s", "events per CPU-second"):
        table.add_column(title, justify="left" if title == "what" else "right")
    medians = {}
    for what, passes in found.items():
        medians[what] = statistics.median(each.cost.seconds for each in passes)
        table.add_row(
            what,
            f"{passes[0].cost.matches:,}",
            f"{medians[what]:.2f}",
            f"{statistics.median(each.wall for each in passes):.2f}",
            f"{passes[0].cost.events / medians[what]:,.0f}",
        )
    Console(width=120).print(table)
    times = medians["backtest"] / medians["read and match"]
    kept = times <= GOAL
    print(f"goal: CPU of a backtest, at most {GOAL:g} times: {times:.2f}: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


def _print_line(what: str) -> None:
    print(what, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
