"""A redrive is killed at every call that can lose data, then gone on with: nothing is lost, or taken twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults import matrix
from faults.crash import crashes
from faults.fault import DIED, KILLED, Fault
from faults.receiver import receiving
from faults.trial import LATE, Scene, Trial
from faults.world import open_world

from eventbridge.stages.records import letters
from eventbridge.stages.redriven import Marks


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A fork server, a receiver, and room for worlds."""
    with crashes() as server, receiving() as log:
        yield Scene(tmp_path_factory.mktemp("worlds"), server, log)


def test_a_redrive_that_dies_anywhere_loses_nothing(scene: Scene) -> None:
    """Killed at its n-th call, for every n: every letter is delivered, under its id, and marked; the books balance."""
    template = Trial(scene, "normal", "redrive-template", [])
    template.make()
    template.run("normal.all").expect(0)
    first = copy_of(template, 0)
    calls = first.run("redrive", Fault("count")).expect(0).told["counts"]["die"]
    first.forget()

    assert calls > 20
    assert matrix.at_once(trials(template, calls)) == calls


def trials(template: Trial, calls: int) -> Iterator[Callable[[], None]]:
    """Yield a trial for every call of a redrive."""
    for number in range(1, calls + 1):
        yield lambda number=number: die(copy_of(template, number), number)  # type: ignore[misc]


def copy_of(template: Trial, number: int) -> Trial:
    """Return a world with dead letters, whose target takes everything from now on."""
    trial = template.copy(f"redrive-{number}")
    trial.healed = True
    return trial


def die(trial: Trial, number: int) -> None:
    """Kill a redrive at a call, recover, go on with the redrive, and prove that each letter came, under one id."""
    begun = trial.runs + 1
    trial.run("redrive", Fault("exit" if number % 2 else "kill", number)).expect(DIED, KILLED)
    trial.recover(LATE)
    trial.run("redrive").expect(0)
    trial.recover(LATE)

    valid = trial.scene.size.valid
    came: dict[str, Counter[str]] = defaultdict(Counter)
    for request in trial.received():
        if request.run >= begun and request.how == "healthy":
            came[request.event][request.webhook_id] += 1
    assert trial.books["differences"] == []
    assert trial.books["open"] == 0
    assert set(came) == {f"order-{each}" for each in range(valid)}
    assert all(len(ids) == 1 for ids in came.values())
    assert all(ids.total() <= 2 for ids in came.values()), "at most: in flight, or not yet written down, when it died"
    assert outcomes(trial.folder) == {"Delivered": valid}
    trial.forget()


def outcomes(folder: Path) -> Counter[str]:
    """Return what the redriven letters of a world came to."""
    work = open_world(folder, {})
    try:
        marks = Marks(work)
        return Counter(mark.outcome for letter in letters(work) if (mark := marks.of(letter)))
    finally:
        work.close()
