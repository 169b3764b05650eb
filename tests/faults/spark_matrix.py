"""Random stories of batches that a real Spark Connect server routes, in which the client or the server dies.

Only `make test-deep` runs them, because a Spark server takes half a minute to restart.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from faults import matrix
from faults.fault import Fault
from faults.kinds import KINDS, KindName
from faults.proof import check
from faults.trial import AT_ONCE, LATE, Scene, Trial, TrialRun
from spark.own_server import own_server

from eventbridge.spark.server import SparkConnectServer

_KINDS: tuple[KindName, ...] = ("normal", "retransform", "deferred_matches")
#: The interval, in seconds, at which to check whether Spark has written a file.
_POLL_SECONDS = 0.005


@dataclass
class Spark:
    """A Spark Connect server that can be killed and restarted at the same address."""

    server: SparkConnectServer
    folder: Path
    alive: bool = False

    @classmethod
    def new(cls, folder: Path) -> Spark:
        """Return a server that has not been started, with its files in `folder`."""
        return cls(own_server(folder), folder)

    @property
    def url(self) -> str:
        """The URL of the server, which is the same after a restart."""
        return self.server.url

    def start(self) -> None:
        """Start the server unless it is running."""
        if not self.alive:
            self.server.start()
            self.alive = True

    def kill(self) -> None:
        """Kill the server's Java process; its Python workers then end."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.stop()
        self.server = SparkConnectServer(self.folder, port=self.server.port, token=self.server.token)

    def stop(self) -> None:
        """Stop the server."""
        self.server.stop()
        self.alive = False


def stories(scene: Scene, spark: Spark, count: int, seed: int) -> Iterator[Callable[[], None]]:
    """Yield trials to run one at a time, in which one or two faults hit a batch, which then recovers."""
    return matrix.stories(count, seed, lambda dice: _story(scene, spark, dice))


def _story(scene: Scene, spark: Spark, dice: random.Random) -> None:
    spark.start()
    kind = dice.choice(_KINDS)
    stages = list(KINDS[kind].stages)
    trial = scene.trial(kind, dice.choice([stages[0], "route"]))
    for turn in range(dice.randint(1, 2)):
        spark.start()
        what = matrix.how_to_recover(trial, dice.choice([AT_ONCE, LATE]))
        if turn == 0:
            what = f"{kind}.route" if "-route-" in trial.name else f"{kind}.all"
        dice.choice([_asker_dies, _asker_is_killed, _spark_is_killed, _both_are_killed])(trial, what, spark, dice)
    spark.start()
    trial.recover(LATE)
    check(trial)


def _asker_dies(trial: Trial, what: str, _: Spark, dice: random.Random) -> None:
    """Have the process that calls Spark, or pushes routed deliveries, die at a random call; Spark continues."""
    trial.run(what, Fault(dice.choice(["exit", "kill"]), int(dice.paretovariate(0.3)) % 200 + 1))  # type: ignore[arg-type]


def _asker_is_killed(trial: Trial, what: str, _: Spark, dice: random.Random) -> None:
    """Kill the calling process once Spark has written a few files; Spark continues with the rest."""
    run = _until_spark_wrote(trial, what, dice)
    run.process.kill()
    run.wait()


def _spark_is_killed(trial: Trial, what: str, spark: Spark, dice: random.Random) -> None:
    """Kill Spark once it has written a few files."""
    run = _until_spark_wrote(trial, what, dice)
    spark.kill()
    run.wait()


def _both_are_killed(trial: Trial, what: str, spark: Spark, dice: random.Random) -> None:
    """Kill the calling process once Spark has written a few files, and then kill Spark."""
    run = _until_spark_wrote(trial, what, dice)
    run.process.kill()
    spark.kill()
    run.wait()


def _until_spark_wrote(trial: Trial, what: str, dice: random.Random) -> TrialRun:
    """Start a run and return once it has ended or there are a few more delivery files."""
    wanted = _delivery_files(trial) + dice.randint(0, 4)
    run = trial.start(what)
    while _delivery_files(trial) < wanted and run.process.code is None:
        time.sleep(_POLL_SECONDS)
    return run


def _delivery_files(trial: Trial) -> int:
    return sum(1 for _ in (trial.folder / "home").glob("**/deliveries/**/*.parquet"))
