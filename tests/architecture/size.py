"""Measures the package: lines, modules, imports, small modules, import circles, and how much one event's story takes.

Run as a program it prints the figures, each beside its goal; `make check` does so.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "include" / "eventbridge"
#: Modules below this many lines belong into their importer if they have one only.
SMALL = 80
#: Where the story of one event begins, by mode.
STORIES = {"batch": "eventbridge.pipeline.deliver", "streaming": "eventbridge.streaming.task"}


@dataclass(frozen=True)
class Module:
    """A module of the package: its name, its text, and its syntax tree."""

    name: str
    text: str

    @property
    def lines(self) -> int:
        """Return how many lines it has."""
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        """Return its syntax tree."""
        return ast.parse(self.text)

    @property
    def import_lines(self) -> int:
        """Return how many of its lines are imports, in functions too."""
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in self._imports(self.tree))

    def imported(self, names: Iterable[str], *, for_types: bool = True) -> set[str]:
        """Return which of some modules it imports; without `for_types` only those that it imports when it runs."""
        known = set(names)
        found = set()
        for node in self._imports(self.tree if for_types else _without_types(self.tree)):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif node.module is not None:
                found |= {
                    whole if (whole := f"{node.module}.{each.name}") in known else node.module for each in node.names
                }
        return (found & known) - {self.name}

    @staticmethod
    def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
        return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _without_types(tree: ast.Module) -> ast.Module:
    kept = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return ast.Module(kept, [])


def modules() -> dict[str, Module]:
    """Return every module of the package by its name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("eventbridge", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path.read_text())
    return found


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the modules that are reached from one by following imports, itself included."""
    found = {start}
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of modules of one room that import each other, directly or by others of the room."""
    rooms = {name: {each for each in imported if _room(each) == _room(name)} for name, imported in graph.items()}
    reached = {name: reachable(rooms, name) for name in rooms}
    groups = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in rooms}
    return sorted({tuple(sorted(group)) for group in groups if len(group) > 1})


def _room(name: str) -> str:
    return ".".join(name.split(".")[:2])


@dataclass(frozen=True)
class Figure:
    """One figure of the package, and its goal: the least and the most that it should be."""

    name: str
    value: float
    least: float
    most: float

    def __str__(self) -> str:
        goal = f"at most {self.most:,g}" if not self.least else f"{self.least:,g} to {self.most:,g}"
        return f"{self.name:<58}{self.value:>10,.10g}   goal: {goal}"


def figures() -> list[Figure]:
    """Measure the package."""
    found = modules()
    graph = {name: module.imported(found) for name, module in found.items()}
    running = {name: module.imported(found, for_types=False) for name, module in found.items()}
    importers = Counter(each for imported in graph.values() for each in imported)
    lines = [module.lines for module in found.values()]
    small = [name for name, module in found.items() if importers[name] == 1 and module.lines < SMALL]
    imports = sum(module.import_lines for module in found.values())
    return [
        Figure("lines", sum(lines), 0, 76_000),
        Figure("modules", len(found), 0, 600),
        Figure("lines of the median module", statistics.median(lines), 110, 160),
        Figure("percent of lines that are imports", round(100 * imports / sum(lines), 1), 0, 7),
        Figure(f"modules with one importer and fewer than {SMALL} lines", len(small), 0, 60),
        Figure("import circles inside a room", len(circles(running)), 0, 0),
        Figure("modules reachable from a batch", len(reachable(graph, STORIES["batch"])), 0, 200),
        Figure("modules reachable from a streaming task", len(reachable(graph, STORIES["streaming"])), 0, 230),
    ]


if __name__ == "__main__":
    sys.stdout.writelines(f"{figure}\n" for figure in figures())
