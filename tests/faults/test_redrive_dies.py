"""A redrive is killed at every call that can lose data, then the product recovers: nothing is lost, or taken twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from faults import world
from faults.crash import DIED, Crashes, crashes

from eventbridge.stages.audit import audit
from eventbridge.stages.records import letters
from eventbridge.stages.redriven import Marks
from eventbridge.testing.receiver import Receiver

_AT_ONCE = 2


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver that records every request."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "requests.jsonl", whole=True) as server:
        yield server


@pytest.fixture(scope="module")
def servers() -> Iterator[Crashes]:
    """As many fork servers as worlds are killed at the same time."""
    with crashes(_AT_ONCE) as running:
        yield running


def heal(folder: Path, url: str) -> None:
    """Let the target that refused everything take what it gets, at a path of the world's own."""
    world.set_rules(folder, url, url)
    path = folder / "rules" / "orders.yaml"
    path.write_text(path.read_text().replace("/bad/refused", f"/healthy/{folder.name}"))


def test_a_redrive_that_dies_anywhere_loses_nothing(tmp_path: Path, receiver: Receiver, servers: Crashes) -> None:
    """Killed at its n-th call, for every n: every letter is delivered, under its id, and marked; the books balance."""
    template = tmp_path / "template"
    world.make_world(template, receiver.url(""))
    for stage in world.STAGES:
        assert servers.run(stage, template) == 0

    def kill(number: int) -> bool:
        folder = tmp_path / f"redrive-{number}"
        shutil.copytree(template, folder)
        heal(folder, receiver.url(""))
        code = servers.run("redrive", folder, die_at=number)
        assert code in (0, DIED), f"redrive at call {number} failed with {code}"
        # whoever comes next is later than any deadline of the batch that died
        assert servers.run("redrive", folder, later=world.LATER) == 0
        assert servers.run("recovery", folder, later=world.LATER + timedelta(minutes=1)) == 0
        check(folder, f"redrive killed at call {number}", receiver)
        shutil.rmtree(folder)
        return code == DIED

    points = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while True:
            died = list(pool.map(kill, range(points + 1, points + 1 + _AT_ONCE * 4)))
            points += sum(died)
            if not all(died):
                break
    assert points > 20


def check(folder: Path, what: str, receiver: Receiver) -> None:
    """Prove that the world's letters came, each under one id and none without need twice."""
    came: dict[str, Counter[str]] = {}
    for request in receiver.requests():
        if request["path"] == f"/healthy/{folder.name}":
            came.setdefault(json.loads(request["body"])["id"], Counter())[request["webhook_id"]] += 1
    work = world.open_world(folder)
    try:
        marks = Marks(work)
        outcomes = Counter(mark.outcome for letter in letters(work) if (mark := marks.of(letter)))

        assert audit(work).differences == (), what
        assert outcomes == {"Delivered": world.VALID}, what
        assert len([each for each in work.ledger.batches(limit=None) if each.kind == "redrive"]) == 1, what
        assert set(came) == {f"order-{number}" for number in range(world.VALID)}, what
        assert all(len(ids) == 1 for ids in came.values()), what
        # twice at most: it was in flight, or answered since the last segment, when it was killed
        assert all(ids.total() <= 2 for ids in came.values()), what
    finally:
        work.close()
