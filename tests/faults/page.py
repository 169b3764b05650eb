"""Reads the table of crash points in docs/contributing/promises.md, and counts it again.

`python -m faults.page` prints the counted table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from faults import matrix
from faults.crash import crashes
from faults.kinds import KINDS
from faults.receiver import receiving
from faults.room import room
from faults.trial import Scene

_PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "promises.md"
_HEAD = "| batch | stage | killed at | failing calls | broken connections | overlapping attempts |"


def table_rows(scene: Scene) -> list[str]:
    """Return the lines of the table: one per stage, then the totals."""
    rows = []
    sums = [0, 0, 0, 0]
    for kind, stage in matrix.batch_stages_of_test():
        most = KINDS[kind].most
        killed = most or len(matrix.deaths_of_test(scene, (kind, stage)))
        failing = 0
        if matrix.fails_in_test((kind, stage)):
            failing = most or len(matrix.failures_of_test(scene, (kind, stage)))
        numbers = [killed, failing, 2 * matrix.requests(scene, (kind, stage)), matrix.OVERLAPS]
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        rows.append(f"| {kind} | {stage} | {' | '.join(map(str, numbers))} |")
    rows.append(f"| all | all, killed again during recovery | {matrix.DOUBLE_KILLS} | | | |")
    sums[0] += matrix.DOUBLE_KILLS
    rows.append(f"| those of streaming tasks | random stories in both modes | {matrix.MIXED} | | | |")
    sums[0] += matrix.MIXED
    rows.append(f"| in all | **{sum(sums):,} trials** | {' | '.join(map(str, sums))} |")
    return rows


def page_rows() -> list[str]:
    """Return the lines of the table on the page."""
    lines = _PAGE.read_text().splitlines()
    start = lines.index(_HEAD) + 2
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return lines[start:end]


def main() -> None:
    """Count the calls, and print the table."""
    with crashes() as server, receiving() as log, room() as folder:
        rows = table_rows(Scene(folder, server, log))
    sys.stdout.write("\n".join([_HEAD, "|---|---|---|---|---|---|", *rows, ""]))


if __name__ == "__main__":
    main()
