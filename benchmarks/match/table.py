"""The lines of the table, what they are compared with, and how they are printed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Comparison:
    """A figure that has a goal: the least it shall be, or, with `at_most`, the most. No goal: only shown."""

    value: float
    unit: str
    goal: float | None = None
    at_most: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


@dataclass(frozen=True)
class Line:
    """What was measured, under which conditions: a value a round, and what they come to."""

    what: str
    rules: int
    size: str
    rates: Sequence[float] = ()  # events per CPU-second
    matches: float | None = None  # per event
    comparisons: Sequence[Comparison] = field(default_factory=tuple)


def print_table(title: str, sections: Sequence[tuple[str, Sequence[Line]]]) -> None:
    """Print the one table; a section begins with its name."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("events per CPU-second", "rules", "bytes", "best", "median", "matches"):
        table.add_column(name, justify="left" if name.startswith("events") else "right", no_wrap=True)
    for name in ("compared", "goal", "reached"):
        table.add_column(name, justify="right", no_wrap=True)
    for section, lines in sections:
        table.add_row()
        table.add_row(f"[bold]{section}")
        for line in lines:
            _add(table, line)
    Console(width=144).print(table)


def _add(table: Table, line: Line) -> None:
    best = f"{max(line.rates):,.0f}" if line.rates else ""
    median = f"{statistics.median(line.rates):,.0f}" if line.rates else ""
    matches = "" if line.matches is None else f"{line.matches:,.2f}"
    head = (line.what, f"{line.rules:,}", line.size, best, median, matches)
    for number, compared in enumerate(line.comparisons or [None]):
        first = head if number == 0 else ("",) * len(head)
        table.add_row(*first, *(_shown(compared) if compared is not None else ("", "", "")))


def _shown(compared: Comparison) -> tuple[str, str, str]:
    digits = 2 if compared.value < 10 else 0
    goal = ""
    if compared.goal is not None:
        goal = f"{'<=' if compared.at_most else '>='} {compared.goal:g}"
    reached = {True: "yes", False: "NO", None: ""}[compared.reached]
    return f"{compared.value:,.{digits}f} {compared.unit}", goal, reached
