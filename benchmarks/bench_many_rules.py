"""`make bench-many-rules`: the cost of a delivery from push to commit if each of many rules has its own target.

Each event of one batch matches one rule, round-robin. Every target is healthy: a path of one compiled receiver, or a
file. The settings are the product's own. A process pushes each chunk, with as many at a time as `make demo` has slots,
and each later stage is a process too, like the tasks of a run. Each process reads the frozen rules again. A batch with
few deliveries shows the cost of rules that no event matches.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench_site import Site, measured, measured_together, settled, site
from benchmarks.compiled_receiver import CompiledReceiver, NoCompiler, compiled_receiver
from rich.console import Console
from rich.table import Table

from eventbridge.delivery.push import push
from eventbridge.errors import EventBridgeError
from eventbridge.pipeline.settle.settlement import read_settled_as

#: The maximum ratio of a delivery's CPU with the most rules to that with the fewest.
CPU_GOALS = {"http": 3.0, "file": 15.0}
#: The maximum ratio of the time of a small batch with the second number of rules to that with the first.
FEW_GOAL = 1.3

_PUSHES_AT_ONCE = 8
#: When Airflow ends a push that does not stop by itself: `airflow.push.push_limit` with the product's settings.
_PUSH_LIMIT_SECONDS = 50.0
#: The number of targets of a small batch, for any number of rules.
_FEW_TARGETS = 10

#: What a rule's target is, by the rule's number and the installation's folder.
TargetOf = Callable[[int, Path], Mapping[str, Any]]


class Found(NamedTuple):
    """What one batch cost from push to commit, and what the ledger says after it."""

    wall: float
    push_cpu: float
    cpu: float
    push_mib: float
    failed: list[str]
    delivered: int
    pending: int
    degraded: int


class Row(NamedTuple):
    """One line of the table; `figure` is what is compared with the line of the fewest rules, by `goal`."""

    what: str
    rules: int
    deliveries: int
    found: Found
    figure: float
    goal: float | None

    @property
    def clean(self) -> bool:
        """Whether everything was delivered, nothing pending and nobody degraded."""
        found = self.found
        return found.delivered == self.deliveries and not (found.pending or found.degraded or found.failed)


def main() -> int:
    """Measure each row and print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rules", type=int, nargs="+", default=[10, 1_000, 10_000], help="numbers of rules (default: 10 1000 10000)"
    )
    parser.add_argument(
        "--deliveries", type=int, default=20_000, help="number of deliveries for each row (default: 20000)"
    )
    parser.add_argument("--few", type=int, default=200, help="deliveries of a small batch (default: 200)")
    parser.add_argument(
        "--times", type=int, default=5, help="small batches for each row, of which the median counts (default: 5)"
    )
    parser.add_argument("--bytes", type=int, default=1024, help="size of a delivery (default: 1024)")
    options = parser.parse_args()
    try:
        with compiled_receiver() as receiver:
            rows = _measure(receiver, options)
    except NoCompiler as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    table, kept = _table(rows)
    Console(width=140).print(table)
    for row in rows:
        for failure in row.found.failed:
            print(f"{row.what}, {row.rules:,} rules: a push failed: {failure}")  # noqa: T201
    print(f"goal: nothing pending, no target degraded: {'met' if all(row.clean for row in rows) else 'MISSED'}")  # noqa: T201
    return 0 if kept and all(row.clean for row in rows) else 1


def _measure(receiver: CompiledReceiver, options: argparse.Namespace) -> list[Row]:
    sorts: dict[str, TargetOf] = {"http": partial(_path_of, receiver), "file": _file_of}
    rows: list[Row] = []
    for kind, target_of in sorts.items():
        for rules in options.rules:
            found = _many(rules, target_of, options.deliveries, options.bytes)
            goal = CPU_GOALS[kind] if rules == max(options.rules) else None
            figure = found.cpu / options.deliveries
            rows.append(_reported(Row(kind, rules, options.deliveries, found, figure, goal)))
    for what, most in ((f"http, {_FEW_TARGETS} of them", _FEW_TARGETS), ("http, in turns", options.few)):
        for rules in options.rules[:2]:
            found = _few(rules, min(rules, most), sorts["http"], options)
            goal = FEW_GOAL if rules != options.rules[0] and most == _FEW_TARGETS else None
            rows.append(_reported(Row(what, rules, options.few, found, found.wall, goal)))
    return rows


def _reported(row: Row) -> Row:
    """Say that a row is measured, as the next may take minutes."""
    found = row.found
    what = (
        f"{row.what}, {row.rules:,} rules: {found.wall:.2f} s, {found.cpu / row.deliveries * 1e6:,.0f} us of CPU each"
    )
    left = f"{found.delivered:,} delivered, {found.pending:,} pending, {found.degraded:,} degraded"
    print(f"{what}, {left}, {len(found.failed)} pushes failed", file=sys.stderr)  # noqa: T201
    return row


def _path_of(receiver: CompiledReceiver, rule: int, _folder: Path) -> Mapping[str, Any]:
    return {"type": "http", "allow_http": True, "connection": "signed", "url": receiver.url(f"/ok/rule-{rule}")}


def _file_of(rule: int, folder: Path) -> Mapping[str, Any]:
    return {"type": "file", "path": str(folder / "lines" / f"rule-{rule}.jsonl")}


def _write_rules(installation: Site, rules: int, target_of: TargetOf) -> None:
    names = {number: f"rule-{number}" for number in range(rules)}
    targets = {name: {"target": target_of(number, installation.folder)} for number, name in names.items()}
    installation.write_rules(targets, types={name: [f"type-{number}"] for number, name in names.items()})


def _many(rules: int, target_of: TargetOf, deliveries: int, size: int) -> Found:
    with site(large=False) as installation:
        _write_rules(installation, rules, target_of)
        installation.publish(deliveries, size, kind=lambda number: f"type-{number % rules}")
        return _delivered(installation)


def _few(rules: int, targets: int, target_of: TargetOf, options: argparse.Namespace) -> Found:
    """Measure small batches, after one that is not, and return the one of the median."""
    deliveries = options.few
    with site(large=False) as installation:
        _write_rules(installation, rules, target_of)
        batches = []
        for first in range(0, (options.times + 1) * deliveries, deliveries):
            installation.publish(deliveries, options.bytes, first, lambda number: f"type-{number % targets}")
            batches.append(_delivered(installation))
    ordered = sorted(batches[1:], key=lambda batch: batch.wall)
    last = batches[-1]
    return ordered[len(ordered) // 2]._replace(pending=last.pending, degraded=last.degraded)


def _delivered(installation: Site) -> Found:
    """Route what was published, push it and commit it."""
    batch_id, chunk_ids = measured(installation.routed).result
    begun = time.perf_counter()
    works = [partial(_push, installation, batch_id, chunk) for chunk in chunk_ids]
    pushes = measured_together(works, _PUSHES_AT_ONCE, _PUSH_LIMIT_SECONDS)
    rest = settled(installation, batch_id)
    wall = time.perf_counter() - begun
    push_cpu = sum(cost.cpu for cost in pushes)
    cpu = push_cpu + sum(cost.cpu for cost in rest.values())
    late = f"it had to be ended after {_PUSH_LIMIT_SECONDS:g} s"
    failed = [cost.result or late for cost in pushes if cost.result != ""]
    peak = max(cost.peak_mib for cost in pushes)
    return Found(wall, push_cpu, cpu, peak, failed, *measured(partial(_standing, installation, batch_id)).result)


def _push(installation: Site, batch_id: str, chunk_id: int) -> str:
    """Push one chunk and return why the push failed, "" if it did not."""
    with closing(installation.open()) as runtime:
        try:
            push(runtime, batch_id, chunk_id)
        except EventBridgeError as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _standing(installation: Site, batch_id: str) -> tuple[int, int, int]:
    """Return how many deliveries of a batch were delivered, how many are pending, and how many targets degraded."""
    with closing(installation.open()) as runtime:
        delivered = sum(table.num_rows for _, table in read_settled_as(runtime, batch_id, ["delivered"], ["row"]))
        pending = sum(count.count for count in runtime.ledger.pending.counts())
        statuses = runtime.ledger.targets.statuses().values()
        return delivered, pending, sum(status.state == "degraded" for status in statuses)


def _table(rows: Sequence[Row]) -> tuple[Table, bool]:
    """Return the table, and whether each goal of a line is kept."""
    table = Table(title=f"push to commit, CPU of a delivery, up to {_PUSHES_AT_ONCE} pushes at a time")
    for title in (
        "targets", "rules", "matches", "CPU us", "of push", "push MiB", "wall s", "delivered", "pending", "degraded",
        "times", "goal", "kept",
    ):  # fmt: skip
        table.add_column(title, justify="left" if title == "targets" else "right", no_wrap=title == "targets")
    kept = True
    for _, group in groupby(rows, key=lambda row: row.what):
        first, *others = group
        for row in (first, *others):
            times, found = row.figure / first.figure, row.found
            reached = row.goal is None or times <= row.goal
            kept = kept and reached
            table.add_row(
                row.what,
                f"{row.rules:,}",
                f"{row.deliveries:,}",
                f"{found.cpu / row.deliveries * 1e6:,.0f}",
                f"{found.push_cpu / row.deliveries * 1e6:,.0f}",
                f"{found.push_mib:.0f}",
                f"{found.wall:.2f}",
                f"{found.delivered:,}",
                f"{found.pending:,}",
                f"{found.degraded:,}",
                f"{times:.2f}",
                f"{row.goal:g}" if row.goal is not None else "",
                "" if row.goal is None else "yes" if reached else "NO",
            )
    return table, kept


if __name__ == "__main__":
    sys.exit(main())
