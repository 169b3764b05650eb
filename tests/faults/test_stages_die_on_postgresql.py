"""The crash matrix with the ledger and the bus on a PostgreSQL server, which outlives the process.

Only the stages with the most important transactions die, at some of their calls, and at more in the deep profile. All
stages die with a ledger in a file, which runs the same statements (see `test_every_stage_dies.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import matrix
from faults.crash import crashes
from faults.receiver import receiving
from faults.trial import Scene
from services.postgresql import Postgresql

_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
#: For each stage, it dies at one in this many calls: in the deep profile, and otherwise.
BATCH_STAGES: dict[matrix.BatchStage, tuple[int, int]] = {
    ("normal", "listen"): (2, 4),
    ("normal", "push"): (8, 16),
    ("normal", "commit"): (1, 2),
    ("retry", "plan"): (1, 2),
    ("retry", "commit"): (1, 2),
    ("replay", "plan"): (2, 4),
    ("retention", "maintain"): (3, 9),
}
#: The number of evenly spread calls of a commit at which ledger or bus fails; the deep profile has every call fail.
_FAILURES = None if _DEEP else 10


@pytest.fixture(scope="module")
def scene(worlds: Path, postgresql_server: Postgresql) -> Iterator[Scene]:
    """Provide a fork server, a receiver, a server for ledgers and a folder for worlds."""
    with crashes() as server, receiving() as log:
        yield Scene(worlds, server, log, server_of_ledgers=postgresql_server)


@pytest.mark.parametrize("batch_stage", BATCH_STAGES, ids="-".join)
def test_a_stage_that_dies_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """If a stage exits or is killed, the server rolls back its transaction, and the next run finishes the stage."""
    deep, every = BATCH_STAGES[batch_stage]
    numbers = range(1, scene.counts(*batch_stage)["die"] + 1, deep if _DEEP else every)

    assert matrix.at_once(matrix.kills(scene, batch_stage, numbers)) >= 3


def test_a_commit_that_fails_loses_nothing(scene: Scene) -> None:
    """If ledger or bus fails at any call of the stage that moves offsets, nothing is lost."""
    count = scene.counts("normal", "commit")["fail"]

    assert matrix.at_once(matrix.failures(scene, ("normal", "commit"), matrix.spread(count, _FAILURES))) >= 4


@pytest.mark.parametrize("batch_stage", [("normal", "push"), ("retry", "plan"), ("normal", "commit")], ids="-".join)
def test_two_attempts_at_once_lose_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """If an attempt pauses, another one finishes, and the first one then continues, nothing is lost."""
    assert matrix.at_once(matrix.overlaps(scene, batch_stage, matrix.OVERLAPS)) == matrix.OVERLAPS
