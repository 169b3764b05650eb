"""The crash matrix with the ledger, and the bus, on a PostgreSQL server: where what is committed is known elsewhere.

The stages whose transactions decide most; all of them, at every call, die with a ledger in a file (see
`test_every_stage_dies.py`), by the same statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import matrix
from faults.crash import crashes
from faults.receiver import receiving
from faults.trial import Scene
from services.postgresql import Postgresql

#: Each stage with how many of its calls there are to one at which it dies.
PLACES: dict[matrix.Place, int] = {
    ("normal", "listen"): 2,
    ("normal", "push"): 8,
    ("normal", "commit"): 1,
    ("retry", "plan"): 1,
    ("retry", "commit"): 1,
    ("replay", "plan"): 2,
    ("retention", "maintain"): 3,
}


@pytest.fixture(scope="module")
def scene(worlds: Path, postgresql_server: Postgresql) -> Iterator[Scene]:
    """A fork server, a receiver, a server for ledgers, and room for worlds."""
    with crashes() as server, receiving() as log:
        yield Scene(worlds, server, log, server_of_ledgers=postgresql_server)


@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_a_stage_that_dies_loses_nothing(place: matrix.Place, scene: Scene) -> None:
    """Ended at its n-th call, by itself or by SIGKILL: the server undoes what it had begun, the next run finishes."""
    assert matrix.at_once(matrix.kills(scene, place, PLACES[place])) >= 3


def test_a_commit_that_fails_loses_nothing(scene: Scene) -> None:
    """Ledger or bus fails at the n-th call of the stage that moves offsets, for every n: nothing is lost."""
    assert matrix.at_once(matrix.failures(scene, ("normal", "commit"))) >= 4


@pytest.mark.parametrize("place", [("normal", "push"), ("retry", "plan"), ("normal", "commit")], ids="-".join)
def test_two_attempts_at_once_lose_nothing(place: matrix.Place, scene: Scene) -> None:
    """An attempt stands still, another does all of its work, and then the first one goes on."""
    assert matrix.at_once(matrix.overlaps(scene, place, matrix.OVERLAPS)) == matrix.OVERLAPS
