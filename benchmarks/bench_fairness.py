"""`make bench-fairness`: priorities, a quiet topic beside a hot one, and how soon an override takes effect.

Airflow is not used, so its scheduler loop adds to each time here: the benchmark's own executor assigns push slots as
Airflow does, to the highest weight first. Targets are paths of a compiled receiver. High-priority rules offer three
times as much work as there are slots for ten minutes. Rounds of a quiet topic alone and beside a hot one alternate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from benchmarks.compiled_receiver import CompiledReceiver, NoCompiler, compiled_receiver
from benchmarks.fairness.lanes import SLOTS, TIMES, LaneFound, measure_lanes
from benchmarks.fairness.overrides import TimeToEffect, measure_overrides
from benchmarks.fairness.topics import measure_topic, quantile
from rich.console import Console
from rich.table import Table

#: Low settles at least this share, and none of it waits longer than a run of `eventbridge_deliver_<runner>` may take:
#: seconds.
SHARE_GOAL, WAIT_GOAL = 0.05, 200.0
#: The maximum ratio of the quiet topic's p99 beside a hot one to that alone.
P99_GOAL = 1.3
#: The maximum time from an override to its effect, in seconds, without Airflow's scheduler loop.
EFFECT_GOAL = 1.0


def main() -> int:
    """Measure, print the tables; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="duration of high beside low priority (default: 600)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of the quiet topic, alone and beside a hot one (default: 3)"
    )
    parser.add_argument(
        "--topic-seconds", type=float, default=60.0, help="duration of a round with topics (default: 60)"
    )
    parser.add_argument("--quiet", type=float, default=2.0, help="events a second of the quiet topic (default: 2)")
    parser.add_argument("--hot", type=float, default=100.0, help="events a second of the hot one (default: 100)")
    parser.add_argument(
        "--backlog", type=int, default=0, help="backlog of the hot topic at the start, in events (default: 0)"
    )
    parser.add_argument("--between", type=float, default=6.0, help="seconds between two overrides (default: 6)")
    parser.add_argument(
        "--only", choices=["lanes", "topics", "words"], help="only one of the parts; words: overrides (default: all)"
    )
    options = parser.parse_args()
    try:
        with compiled_receiver() as receiver:
            kept = _measured(receiver, options)
    except NoCompiler as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0 if all(kept) else 1


def _measured(receiver: CompiledReceiver, options: argparse.Namespace) -> list[bool]:
    kept = []
    if options.only in (None, "lanes"):
        kept.append(_lanes(measure_lanes(receiver, options.seconds), options.seconds))
    if options.only in (None, "topics"):
        kept.append(_topics(receiver, options))
    if options.only in (None, "words"):
        kept.append(_overrides(measure_overrides(receiver, options.between)))
    return kept


def _lanes(found: Mapping[str, LaneFound], seconds: float) -> bool:
    table = Table(title=f"high offers {TIMES} times the {SLOTS} slots, low once, for {seconds:g} s")
    for title in ("priority", "settled", "a second", "share", "oldest wait s", "pending at the end"):
        table.add_column(title, justify="left" if title == "priority" else "right")
    total = sum(each.settled for each in found.values()) or 1
    for lane, each in found.items():
        share = each.settled / total
        row = (f"{each.settled:,}", f"{each.settled / seconds:,.1f}", f"{share:.1%}", f"{each.oldest_wait:.1f}")
        table.add_row(lane, *row, f"{each.pending:,}")
    Console(width=120).print(table)
    low = found["low"]
    return _judged(
        f"low settles at least {SHARE_GOAL:.0%}", f"{low.settled / total:.1%}", kept=low.settled >= SHARE_GOAL * total
    ) & _judged(
        f"its oldest wait, at most {WAIT_GOAL:g} s", f"{low.oldest_wait:.1f} s", kept=low.oldest_wait <= WAIT_GOAL
    )


def _topics(receiver: CompiledReceiver, options: argparse.Namespace) -> bool:
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(options.rounds):
        for took, hot in ((alone, 0.0), (beside, options.hot)):
            took += measure_topic(receiver, options.topic_seconds, options.quiet, hot, burst=options.backlog)
    rounds = f"{options.rounds} rounds of {options.topic_seconds:g} s"
    table = Table(title=f"a quiet topic, {options.quiet:g} events a second, {rounds}")
    for title in ("the hot topic", "events", "p50 s", "p99 s", "longest s"):
        table.add_column(title, justify="left" if title.startswith("the") else "right")
    for what, took in (("is silent", alone), (f"has {options.hot:g} a second", beside)):
        took.sort()
        figures = (quantile(took, 0.5), quantile(took, 0.99), took[-1])
        table.add_row(what, f"{len(took):,}", *(f"{each:.2f}" for each in figures))
    Console(width=120).print(table)
    times = quantile(beside, 0.99) / quantile(alone, 0.99)
    return _judged(f"p99 beside a hot topic, at most {P99_GOAL:g} times", f"{times:.2f}", kept=times <= P99_GOAL)


def _overrides(effects: Sequence[TimeToEffect]) -> bool:
    table = Table(title="an override, and when it takes effect")
    for title in ("said", "seconds to effect"):
        table.add_column(title, justify="left" if title == "said" else "right")
    for effect in effects:
        table.add_row(effect.action, f"{effect.seconds:.2f}")
    Console(width=120).print(table)
    worst = max(effects, key=lambda each: (not each.seconds <= EFFECT_GOAL, each.seconds))
    kept = all(each.seconds <= EFFECT_GOAL for each in effects)
    goal = f"every override takes effect within {EFFECT_GOAL:g} s, apart from a loop of Airflow's scheduler"
    return _judged(goal, f"{worst.action} after {worst.seconds:.2f} s", kept=kept)


def _judged(goal: str, found: str, *, kept: bool) -> bool:
    print(f"goal: {goal}: {found}: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


if __name__ == "__main__":
    sys.exit(main())
