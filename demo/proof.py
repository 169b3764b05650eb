"""Proves that no flight is lost: by the reconciliation, by the receiver's own record, and by what lies in the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from demo.receipts import compare, duplicates, read_record
from demo.standings import standings, unexpected
from demo.tally import table, tally
from eventbridge.rule import RuleSet
from eventbridge.stages.operate.audit import Audit
from eventbridge.stages.runtime.runtime import Runtime

Say = Callable[[str], None]

_COLUMNS = ("matched", "delivered", "pending", "dead")


def differences(runtime: Runtime, audited: Audit, rules: RuleSet, received: Path, say: Say) -> list[str]:
    """Say what became of every delivery, and return what is wrong with it; `received` is the receiver's record."""
    tallies = tally(runtime)
    _say_table(table(tallies, audited), say)
    _say_pending(runtime, say)
    problems = [*audited.differences, *say_reconciliation(audited, say), *_say_standings(runtime, audited, say)]
    record = read_record(received)
    compared = dict(compare(rules, tallies, record, runtime.settings.file_target_folders[0]))
    say(
        f"\nThe receiver's own record and the files' lines: {sum(not each for each in compared.values())} of "
        f"{len(compared)} targets have exactly what the reconciliation says; {duplicates(record)} duplicates"
    )
    return problems + [f"{name}: {difference}" for name, difference in compared.items() if difference]


def say_reconciliation(audited: Audit, say: Say) -> list[str]:
    """Say how many events and deliveries the reconciliation has, and return whether their sums add up."""
    events = audited.events
    say(
        f"\nReconciliation of {audited.batches} batches: {events['range_total']:,} offsets = {events['read']:,} read + "
        f"{events['gaps']:,} gaps; {events['read']:,} read = {events['malformed']:,} malformed + "
        f"{events['duplicate']:,} duplicate + {events['valid']:,} valid"
    )
    sums = {name: sum(row[name] for row in audited.deliveries.values()) for name in _COLUMNS}
    say(
        f"{sums['matched']:,} matched = {sums['delivered']:,} delivered + {sums['pending']:,} pending + "
        f"{sums['dead']:,} dead-lettered"
    )
    balanced = sums["matched"] == sums["delivered"] + sums["pending"] + sums["dead"]
    return [] if balanced else ["the sums of deliveries do not add up"]


def say_verdict(problems: Sequence[str], say: Say) -> int:
    """Say what is wrong, or that nothing is; return the exit code."""
    for problem in problems:
        say(f"  DIFFERENCE {problem}")
    say("\nEvery flight is accounted for." if not problems else f"\n{len(problems)} differences.")
    return 1 if problems else 0


def _say_standings(runtime: Runtime, audited: Audit, say: Say) -> list[str]:
    rules, statuses = runtime.rule_set(), runtime.ledger.target_statuses()
    say("\nTargets:")
    for line in standings(rules, statuses):
        say(f"  {line}")
    matched = {key: sums["matched"] for key, sums in audited.deliveries.items()}
    return list(unexpected(rules, statuses, matched))


def _say_pending(runtime: Runtime, say: Say) -> None:
    waiting = [row for row in runtime.ledger.pending_counts() if row.state != "closed"]
    if waiting:
        say("\nPending:")
        for row in waiting:
            when = "on hold for a person" if row.state == "on_hold" else f"next due {row.next_due_at:%H:%M:%S} UTC"
            say(f"  {row.rule}/{row.target}: {row.count:,} after {row.reason}, {when}")


def _say_table(rows: Sequence[Sequence[str]], say: Say) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    say("")
    for number, row in enumerate(rows):
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join([row[0].ljust(len(first)), *others]))
        if number == 0:
            say("  ".join("-" * width for width in widths))
