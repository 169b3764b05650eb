"""The rows of the table: matchers and rule sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from benchmarks.match.workload import KINDS, Workload


class Key(NamedTuple):
    """What is measured: by whom, with which rules, on which events."""

    who: str  # kernel | event ruler | udf | route | whole route | whole route on Spark
    rule_set: str
    rules: int
    events: str  # 519 | 4096 | sources | arrays | keys-100 | keys-1000 | keys-5000 | orders | objects


PROFILED: Final = (1, 100, 10_000)
"""The numbers of mixed rules for which the benchmark reports where the time goes."""


def rule_sets(work: Workload) -> Iterator[tuple[str, int]]:
    """Yield every rule set that both our kernel and Event Ruler get."""
    yield from (("mixed", count) for count in work.scale.rules)
    yield from ((kind, count) for kind in KINDS for count in work.scale.rules_of_one_kind)


def hostile_sets(work: Workload) -> Iterator[Key]:
    """Yield what is made to hurt the kernel: none shall be slower than a fifth of the mixed rules' rate."""
    yield Key("kernel", "wildcard", 1_000, "sources")
    yield Key("kernel", "break-points", max(work.scale.rules), "519")
    yield Key("kernel", "mixed", 1_000, "arrays")
    yield Key("kernel", "conditions", 1_000, "519")


def slow_sets(work: Workload) -> Iterator[Key]:
    """Yield what is known to be slow, and what is like it and is not."""
    for keys in (100, 1_000, 5_000):
        yield Key("kernel", f"keys-{keys}", max(work.scale.rules), f"keys-{keys}")
    yield Key("kernel", "regex-type", 1_000, "519")
    yield Key("kernel", "regex-subject", 1_000, "519")
    yield Key("kernel", "common-signs", 1_000, "519")
    yield Key("kernel", "orders", 1_000, "orders")
    yield Key("kernel", "objects", 1_000, "objects")


def routed_sets() -> Iterator[Key]:
    """Yield what route as a whole is measured with: in one process, and on Spark."""
    for count in (1, 10, 100):
        yield Key("whole route", "mixed", count, "519")
    yield Key("whole route", "many-matches", 100, "519")
    yield Key("whole route on Spark", "mixed", 100, "519")
    yield Key("whole route on Spark", "many-matches", 100, "519")


def profiled_sets(work: Workload) -> Iterator[int]:
    """Yield the numbers of mixed rules whose time is taken apart."""
    yield from (count for count in PROFILED if count in work.scale.rules)
