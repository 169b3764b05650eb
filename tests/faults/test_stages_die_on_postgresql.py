"""The crash matrix with the ledger, and the bus, on a PostgreSQL server: where what is committed is known elsewhere.

The stages whose transactions decide most, at some of their calls, in the deep profile at more; all of them die with a
ledger in a file (see `test_every_stage_dies.py`), by the same statements.
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
#: Each stage with how many of its calls there are to one at which it dies: in the deep profile, and else.
BATCH_STAGES: dict[matrix.BatchStage, tuple[int, int]] = {
    ("normal", "listen"): (2, 4),
    ("normal", "push"): (8, 16),
    ("normal", "commit"): (1, 2),
    ("retry", "plan"): (1, 2),
    ("retry", "commit"): (1, 2),
    ("replay", "plan"): (2, 4),
    ("retention", "maintain"): (3, 9),
}
#: At how many calls of a commit, spread, ledger or bus fails: at every one in the deep profile.
_FAILURES = None if _DEEP else 10


@pytest.fixture(scope="module")
def scene(worlds: Path, postgresql_server: Postgresql) -> Iterator[Scene]:
    """A fork server, a receiver, a server for ledgers, and room for worlds."""
    with crashes() as server, receiving() as log:
        yield Scene(worlds, server, log, server_of_ledgers=postgresql_server)


@pytest.mark.parametrize("batch_stage", BATCH_STAGES, ids="-".join)
def test_a_stage_that_dies_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """Ended at its n-th call, by itself or by SIGKILL: the server undoes what it had begun, the next run finishes."""
    deep, every = BATCH_STAGES[batch_stage]
    numbers = range(1, scene.counts(*batch_stage)["die"] + 1, deep if _DEEP else every)

    assert matrix.at_once(matrix.kills(scene, batch_stage, numbers)) >= 3


def test_a_commit_that_fails_loses_nothing(scene: Scene) -> None:
    """Ledger or bus fails at the n-th call of the stage that moves offsets: nothing is lost."""
    count = scene.counts("normal", "commit")["fail"]

    assert matrix.at_once(matrix.failures(scene, ("normal", "commit"), matrix.spread(count, _FAILURES))) >= 4


@pytest.mark.parametrize("batch_stage", [("normal", "push"), ("retry", "plan"), ("normal", "commit")], ids="-".join)
def test_two_attempts_at_once_lose_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """An attempt pauses, another does all of its work, and then the first one continues."""
    assert matrix.at_once(matrix.overlaps(scene, batch_stage, matrix.OVERLAPS)) == matrix.OVERLAPS
