"""A repair is killed at every call that can lose data, then made again: the batch is whole, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from faults import matrix
from faults.crash import crashes
from faults.fault import DIED, KILLED, Fault
from faults.receiver import receiving
from faults.trial import LATE, Scene, Trial
from faults.world import open_world


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A fork server, a receiver, and room for worlds."""
    with crashes() as server, receiving() as log:
        yield Scene(tmp_path_factory.mktemp("worlds"), server, log)


def test_a_repair_that_dies_anywhere_loses_nothing(scene: Scene) -> None:
    """Killed at its n-th call, for every n: made again it is done, on record, and every delivery is accounted for.

    Of the batch a delivery file, a segment with answers and the settlement cannot be read.
    """
    damaged = scene.trial("normal", "commit")
    damaged.run("damage").expect(0)
    broken = damaged.copy("repair-0")
    calls = broken.run("repair", Fault("count")).expect(0).told["counts"]["die"]
    files = set(unreadable(broken))
    broken.forget()

    assert len(files) == 3
    assert calls > 20
    assert matrix.at_once(trials(damaged, files, calls)) == calls


def trials(damaged: Trial, files: set[str], calls: int) -> Iterator[Callable[[], None]]:
    """Yield a trial for every call of a repair."""
    for number in range(1, calls + 1):
        yield lambda number=number: die(damaged.copy(f"repair-{number}"), files, number)  # type: ignore[misc]


def die(trial: Trial, files: set[str], number: int) -> None:
    """Kill a repair at a call, make it again, let the product go on, and prove that nothing is lost or unrecorded."""
    trial.run("repair", Fault("exit" if number % 2 else "kill", number)).expect(DIED, KILLED)
    trial.run("repair").expect(0)
    trial.recover(LATE)

    assert set(unreadable(trial)) == files, "what was unreadable stands in a record, whoever wrote it"
    trial.check()


def unreadable(trial: Trial) -> list[str]:
    """Return the files that the records of repairs name as unreadable."""
    work = open_world(trial.folder, {})
    try:
        records = [json.loads(work.store.get(path)) for path in work.store.list("repairs/")]
    finally:
        work.close()
    return [path for record in records for path in record["unreadable"]]
