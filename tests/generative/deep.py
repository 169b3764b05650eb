"""The long comparison that `make test-deep` runs: random rules on random events, then damaged documents.

Tests also run a small part of it in a separate process, because an error may end the process.
"""

from __future__ import annotations

import argparse
import sys
import time

from generative import guard_page
from generative.kernel_agreement import NOTHING, compare_seed
from generative.strictness import BLOCK, check_damaged

RULES = (1, 3, 10, 50, 100, 130, 200)
EVENTS = 200
SHOWN = 20


def main() -> int:
    """Compare as often as requested, print a line for each kind, and return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=0, help="pairs of rule and event")
    parser.add_argument("--documents", type=int, default=0, help="damaged documents")
    parser.add_argument("--seed", type=int, default=1_000_000)
    parser.add_argument("--guard", choices=("end", "beginning"), help="where the tables meet a forbidden page")
    asked = parser.parse_args()
    if asked.guard:
        guard_page.guard_all(asked.guard)
    differences = agree(asked.seed, asked.pairs) + refuse(asked.seed, asked.documents)
    for difference in differences[:SHOWN]:
        sys.stdout.write(difference + "\n")
    return 1 if differences else 0


def agree(seed: int, pairs: int) -> list[str]:
    """Compare at least `pairs` pairs; return the differences."""
    total, began = NOTHING, time.monotonic()
    while total.pairs < pairs:
        total = total.plus(compare_seed(seed, RULES[seed % len(RULES)], EVENTS))
        seed += 1
    if pairs:
        sys.stdout.write(
            f"{total.pairs:,} pairs, {total.matched:,} of them match, {time.monotonic() - began:.0f} s, "
            f"{len(total.differences)} differences, {total.handed_back:,} handed back\n"
        )
    return total.differences


def refuse(seed: int, documents: int) -> list[str]:
    """Check at least `documents` damaged documents; return the differences."""
    done, refused, began = 0, 0, time.monotonic()
    differences: list[str] = []
    while done < documents:
        count = min(20 * BLOCK, documents - done)
        now_refused, now_differences = check_damaged(seed, count)
        done, refused, seed = done + count, refused + now_refused, seed + 1
        differences += now_differences
    if documents:
        sys.stdout.write(
            f"{done:,} damaged documents, {refused:,} of them refused, {time.monotonic() - began:.0f} s, "
            f"{len(differences)} differences\n"
        )
    return differences


if __name__ == "__main__":
    sys.exit(main())
