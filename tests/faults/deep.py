"""The long crash matrix that `make test-deep` runs: every pair of kills of every stage, and random stories.

    PYTHONPATH=tests python -m faults.deep --schedules 1000

Random stories happen to batches of sixty events, whose segments hold five answers and whose chunks twenty deliveries.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from faults import matrix
from faults.crash import crashes
from faults.receiver import receiving
from faults.trial import Scene
from faults.world import Size

_LARGER = Size(valid=60, range_events=16, segment_answers=5, chunk_deliveries=20)


def main() -> None:
    """Run all of it; the first trial that loses something ends it with what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="random stories (default: 1000)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random stories (default: the time)")
    parser.add_argument("--only", choices=("all", "places", "schedules"), default="all", help="what to run")
    options = parser.parse_args()
    with crashes() as server, receiving() as log, tempfile.TemporaryDirectory() as folder:
        if options.only != "schedules":
            scene = Scene(Path(folder) / "small", server, log)
            for place in matrix.places():
                name = " ".join(place)
                _tell(f"{name}: pairs of kills", matrix.every_pair(scene, place))
                _tell(f"{name}: failing calls, reads too", matrix.failures(scene, place, reads=True))
                _tell(f"{name}: calls that fail from then on", matrix.failures(scene, place, lasting=True))
                _tell(f"{name}: overlapping attempts", matrix.overlaps(scene, place))
        if options.only != "places":
            larger = Scene(Path(folder) / "larger", server, log, _LARGER)
            what = f"random schedules, seed {options.seed}"
            _tell(what, matrix.random_schedules(larger, options.schedules, options.seed))


def _tell(what: str, trials: Iterable[Callable[[], None]]) -> None:
    began = time.monotonic()
    count = matrix.at_once(trials)
    sys.stdout.write(f"{what}: {count:,} trials, nothing lost, {time.monotonic() - began:.0f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
