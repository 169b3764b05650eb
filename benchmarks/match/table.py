"""The lines of the table, their comparisons, and their printing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from benchmarks.match.breakdown import Shares

_WIDTH = 200

RATE = "events"
"""The unit of a comparison that is about the line's own rate."""

KEPT = {True: "met", False: "MISSED", None: ""}


@dataclass(frozen=True)
class Comparison:
    """A figure with a goal: the least it shall be, or, with `at_most`, the most; and with a floor, the least of all.

    Without them it is only shown.
    """

    value: float
    unit: str
    goal: float | None = None
    at_most: bool = False
    floor: float | None = None

    def judged(self, what: str) -> tuple[float | None, bool | None]:
        """Return the bound that is called `goal` or `floor`, and whether it is kept; None and None without one."""
        bound = self.goal if what == "goal" else self.floor
        if bound is None:
            return None, None
        return bound, self.value <= bound if self.at_most else self.value >= bound


@dataclass(frozen=True)
class Line:
    """What was measured, under which conditions: a value a round, and what they come to."""

    what: str
    rules: int
    size: str
    rates: Sequence[float] = ()  # events per CPU-second
    matches: float | None = None  # per event
    comparisons: Sequence[Comparison] = field(default_factory=tuple)


Sections: TypeAlias = Sequence[tuple[str, Sequence[Line]]]
"""The parts of the table, each with its name."""


def print_table(title: str, sections: Sections, console: Console | None = None) -> None:
    """Print the one table; a section begins with its name."""
    console = console or Console(width=_WIDTH)
    console.print(f"{title}\n")
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("events per CPU-second", "rules", "bytes", "best", "median", "matches"):
        table.add_column(name, justify="left" if name.startswith("events") else "right", no_wrap=True)
    for name in ("compared", "goal", "", "floor", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for section, lines in sections:
        table.add_row()
        table.add_row(f"[bold]{section}")
        for line in lines:
            _add(table, line)
    console.print(table)


def print_shares(title: str, shares: Mapping[int, Sequence[Shares]], console: Console | None = None) -> None:
    """Print where the time goes, by number of rules: medians over the rounds."""
    console = console or Console(width=_WIDTH)
    console.print(f"{title}\n")
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("rules", "scan", "classify", "AND and output", "Python around it", "in all"):
        table.add_column(name, justify="right", no_wrap=True)
    for count, rounds in shares.items():
        parts = [statistics.median(values) for values in zip(*rounds, strict=True)]
        table.add_row(f"{count:,}", *(f"{part:,.0f}" for part in (*parts, sum(parts))))
    console.print(table)


def summary_lines(sections: Sections) -> Iterator[str]:
    """Yield how many goals and floors are kept, and those that are not, a line each."""
    every = [(section, line, one) for section, lines in sections for line in lines for one in line.comparisons]
    for what in ("goal", "floor"):
        judged = [(section, line, one, *one.judged(what)) for section, line, one in every]
        kept = [each[-1] for each in judged if each[-1] is not None]
        yield f"{sum(kept)} of {len(kept)} {what}s met"
        for section, line, one, bound, is_kept in judged:
            if is_kept is False:
                where = f"{section}: {line.what}, {line.rules:,} rules"
                yield f"  MISSED: {where}: {_figure(one)}, {what} {_bound(one, bound)}"


def _add(table: Table, line: Line) -> None:
    best = _rate(max(line.rates)) if line.rates else ""
    median = _rate(statistics.median(line.rates)) if line.rates else ""
    matches = "" if line.matches is None else f"{line.matches:,.2f}"
    head = (line.what, f"{line.rules:,}", line.size, best, median, matches)
    for number, compared in enumerate(line.comparisons or [None]):
        first = head if number == 0 else ("",) * len(head)
        table.add_row(*first, *(_shown(compared) if compared is not None else ()))


def _rate(rate: float) -> str:
    return f"{rate:,.{2 if rate < 10 else 0}f}"


def _shown(compared: Comparison) -> tuple[str, ...]:
    shown = []
    for what in ("goal", "floor"):
        bound, kept = compared.judged(what)
        shown += [_bound(compared, bound), KEPT[kept]]
    # A rate stands in the column "median" already.
    figure = "" if compared.unit == RATE else _figure(compared)
    return (figure, *shown)


def _figure(compared: Comparison) -> str:
    digits = 2 if abs(compared.value) < 10 else 0
    return f"{compared.value:,.{digits}f} {compared.unit}"


def _bound(compared: Comparison, bound: float | None) -> str:
    if bound is None:
        return ""
    return f"{'<=' if compared.at_most else '>='} {bound:,.{0 if bound >= 10 else 1}f}"
