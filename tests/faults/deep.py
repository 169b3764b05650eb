"""The long crash matrix that `make test-deep` runs: every pair of kills of every stage, and random stories.

    PYTHONPATH=tests python -m faults.deep --schedules 1000 --spark-schedules 20
    PYTHONPATH=tests python -m faults.deep --only pairs --stages retry.plan redrive.plan

The batches of random stories have 60 orders and 40 moves; their segments hold 5 responses and their chunks 20
deliveries. A few stories use a separate Spark Connect server.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from faults import matrix, spark_matrix
from faults.crash import Crashes, crashes
from faults.receiver import Log, receiving
from faults.room import room
from faults.trial import Scene
from faults.tried import TRIED, in_all
from faults.world import Size

_LARGER = Size(valid=60, moves=40, range_events=16, segment_responses=5, chunk_deliveries=20)
_ONLY = ("all", "pairs", "singles", "schedules", "spark")


def main() -> None:
    """Run all trials; the first one that loses something ends the run with the error."""
    options = _options()
    only, seed = options.only, options.seed
    with room() as folder, receiving() as log:
        with crashes() as server:
            small = Scene(folder / "small", server, log)
            if only in ("all", "pairs"):
                _pairs(small, options.stages)
            if only in ("all", "singles"):
                _singles(small, options.stages)
            if only in ("all", "schedules"):
                larger = Scene(folder / "larger", server, log, _LARGER)
                schedules = matrix.random_schedules(larger, options.schedules, seed, options.first)
                _run(f"random schedules, seed {seed}", schedules)
        if only in ("all", "spark") and options.spark_schedules:
            with crashes(spark=True) as server:
                _on_spark(folder, server, log, options.spark_schedules, seed)
    sys.stdout.write(f"in all {in_all(TRIED)}, nothing lost\n")


def _options() -> argparse.Namespace:
    known = {".".join(batch_stage): batch_stage for batch_stage in matrix.batch_stages()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="random stories (default: 1000)")
    parser.add_argument("--spark-schedules", type=int, default=20, help="those on a real Spark (default: 20)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random stories (default: the time)")
    parser.add_argument("--first", type=int, default=0, help="number of the first random story, as an error names it")
    parser.add_argument("--only", choices=_ONLY, default="all", help="what to run; singles: one fault each")
    parser.add_argument("--stages", nargs="+", choices=known, default=list(known), metavar="KIND.STAGE", help="which")
    options = parser.parse_args()
    options.stages = [known[name] for name in options.stages]
    return options


def _pairs(scene: Scene, batch_stages: Iterable[matrix.BatchStage]) -> None:
    for batch_stage in batch_stages:
        _run(f"{' '.join(batch_stage)}: pairs of kills", matrix.every_pair(scene, batch_stage))
        scene.forget_killed()


def _singles(scene: Scene, batch_stages: Iterable[matrix.BatchStage]) -> None:
    for batch_stage in batch_stages:
        name = " ".join(batch_stage)
        _run(f"{name}: kills", matrix.kills(scene, batch_stage))
        _run(f"{name}: failing calls, reads too", matrix.failures(scene, batch_stage, reads=True))
        _run(f"{name}: calls that fail from then on", matrix.failures(scene, batch_stage, lasting=True))
        _run(f"{name}: overlapping attempts", matrix.overlaps(scene, batch_stage))


def _on_spark(folder: Path, server: Crashes, log: Log, count: int, seed: int) -> None:
    spark = spark_matrix.Spark.new(folder / "spark")
    try:
        scene = Scene(folder / "on-spark", server, log, _LARGER, spark.url)
        what = f"random schedules on Spark, seed {seed}"
        _run(what, spark_matrix.stories(scene, spark, count, seed), worlds=1)
    finally:
        spark.stop()


def _run(what: str, trials: Iterable[Callable[[], bool | None]], worlds: int = matrix.WORLDS_AT_ONCE) -> None:
    began = time.monotonic()
    count = matrix.at_once(trials, worlds)
    sys.stdout.write(f"{what}: {count:,} trials, nothing lost, {time.monotonic() - began:.0f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
