"""Proves that no flight is lost, from the reconciliation, the receiver's own record, and the targets' files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from demo.receipts import compare, duplicates, read_record
from demo.tally import table, tally
from demo.target_states import target_lines, unexpected_states
from eventbridge.repair.audit import Audit
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime

PrintLine = Callable[[str], None]

_COLUMNS = ("matched", "delivered", "pending", "dead_lettered")


def differences(runtime: Runtime, audited: Audit, rules: RuleSet, received: Path, print_line: PrintLine) -> list[str]:
    """Print the result of all deliveries, and return the differences; `received` is the receiver's record."""
    tallies = tally(runtime)
    _print_table(table(tallies, audited), print_line)
    _print_pending(runtime, print_line)
    problems = [
        *audited.differences,
        *print_reconciliation(audited, print_line),
        *_print_target_states(runtime, audited, print_line),
    ]
    record = read_record(received)
    compared = dict(compare(rules, tallies, record, runtime.settings.file_target_folders[0]))
    print_line(
        f"\nThe receiver's own record and the lines of files: {sum(not each for each in compared.values())} of "
        f"{len(compared)} targets have exactly the deliveries of the reconciliation; {duplicates(record)} duplicates"
    )
    return problems + [f"{name}: {difference}" for name, difference in compared.items() if difference]


def print_reconciliation(audited: Audit, print_line: PrintLine) -> list[str]:
    """Print the events and deliveries of the reconciliation, and return an error if their sums do not add up."""
    events = audited.events
    print_line(
        f"\nReconciliation of {audited.batches} batches: {events['range_total']:,} offsets = {events['read']:,} read + "
        f"{events['gaps']:,} gaps; {events['read']:,} read = {events['malformed']:,} malformed + "
        f"{events['duplicate']:,} duplicate + {events['valid']:,} valid"
    )
    sums = {name: sum(row[name] for row in audited.deliveries.values()) for name in _COLUMNS}
    print_line(
        f"{sums['matched']:,} matched = {sums['delivered']:,} delivered + {sums['pending']:,} pending + "
        f"{sums['dead_lettered']:,} dead-lettered"
    )
    is_reconciled = sums["matched"] == sums["delivered"] + sums["pending"] + sums["dead_lettered"]
    return [] if is_reconciled else ["the sums of deliveries do not add up"]


def print_result(problems: Sequence[str], print_line: PrintLine) -> int:
    """Print the differences, or that there are none; return the exit code."""
    for problem in problems:
        print_line(f"  DIFFERENCE {problem}")
    print_line("\nEvery flight is accounted for." if not problems else f"\n{len(problems)} differences.")
    return 1 if problems else 0


def _print_target_states(runtime: Runtime, audited: Audit, print_line: PrintLine) -> list[str]:
    rules, statuses = runtime.rule_set(), runtime.ledger.targets.statuses()
    print_line("\nTargets:")
    for line in target_lines(rules, statuses):
        print_line(f"  {line}")
    matched = {key: sums["matched"] for key, sums in audited.deliveries.items()}
    return list(unexpected_states(rules, statuses, matched))


def _print_pending(runtime: Runtime, print_line: PrintLine) -> None:
    waiting = [row for row in runtime.ledger.pending.counts() if row.state != "closed"]
    if waiting:
        print_line("\nPending:")
        for row in waiting:
            when = "on hold for a person" if row.state == "on_hold" else f"next due {row.next_due_at:%H:%M:%S} UTC"
            print_line(f"  {row.rule}/{row.target}: {row.count:,} after {row.reason}, {when}")


def _print_table(rows: Sequence[Sequence[str]], print_line: PrintLine) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print_line("")
    for number, row in enumerate(rows):
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print_line("  ".join([row[0].ljust(len(first)), *others]))
        if number == 0:
            print_line("  ".join("-" * width for width in widths))
