"""Each stage is killed at every call that can lose data, then the product recovers: nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from faults import world
from faults.crash import DIED, Crashes, crashes

from eventbridge.stages.audit import audit
from eventbridge.testing.receiver import Receiver

#: Worlds that are killed and recovered at the same time.
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


@pytest.mark.parametrize("stage", world.STAGES)
def test_a_stage_that_dies_anywhere_loses_nothing(
    stage: str, tmp_path: Path, receiver: Receiver, servers: Crashes
) -> None:
    """Killed at its n-th call, for every n, each stage is finished by the next run and every event is accounted for."""
    template = tmp_path / "template"
    world.make_world(template, receiver.url(""))
    for before in world.STAGES:
        if before == stage:
            break
        assert servers.run(before, template) == 0
    place = _Place(template, tmp_path, receiver.url(""), servers)

    points = place.kill_everywhere(stage, timedelta(0))

    assert points > 3, "a stage that reaches no fault point proves nothing"


def test_a_retry_batch_that_dies_anywhere_loses_nothing(tmp_path: Path, receiver: Receiver, servers: Crashes) -> None:
    """Killed at its n-th call, for every n, a retry batch is settled by the next run and tried again."""
    template = tmp_path / "template"
    world.make_world(template, receiver.url(""))
    for stage in world.STAGES:
        assert servers.run(stage, template) == 0
    place = _Place(template, tmp_path, receiver.url(""), servers)

    points = place.kill_everywhere("retries", world.LATER)

    assert points > 20


@dataclass(frozen=True)
class _Place:
    """A world as it stands before a stage, to be copied and killed."""

    template: Path
    tmp_path: Path
    receiver: str
    servers: Crashes

    def kill_everywhere(self, stage: str, later: timedelta) -> int:
        """Kill `stage` at 1, 2, 3, ... until it ends before; return at how many calls it died."""
        points = 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while True:
                numbers = range(points + 1, points + 1 + _AT_ONCE * 4)
                died = list(pool.map(lambda number: self._kill_once(stage, number, later), numbers))
                points += sum(died)
                if not all(died):
                    return points

    def _kill_once(self, stage: str, number: int, later: timedelta) -> bool:
        folder = self.tmp_path / f"{stage}-{number}"
        world.copy_world(self.template, folder, self.receiver)
        code = self.servers.run(stage, folder, die_at=number, later=later)
        assert code in (0, DIED), f"{stage} at call {number} failed with {code}"
        world.set_rules(folder, self.receiver, self.receiver)
        assert self.servers.run("recovery", folder, later=later + world.LATER) == 0
        # the retries of what the recovery itself parked, and batches whose run died, are due later still
        assert self.servers.run("recovery", folder, later=later + 2 * world.LATER) == 0
        _check(folder, f"{stage} killed at call {number}")
        shutil.rmtree(folder)
        return code == DIED


def _check(folder: Path, what: str) -> None:
    work = world.open_world(folder)
    try:
        books = audit(work)

        assert books.differences == (), what
        assert books.events["read"] == world.EVENTS, what
        assert books.events["malformed"] == world.MALFORMED, what
        assert books.events["duplicate"] == world.DUPLICATES, what
        delivered = {name: row["delivered"] for name, row in books.deliveries.items()}
        assert delivered == {
            "all-orders/healthy": world.VALID,
            "all-orders/late": world.VALID,
            "all-orders/lines": world.VALID,
            "refused-orders/bad": 0,
        }, what
        assert books.deliveries["refused-orders/bad"]["dead"] == world.VALID, what
        assert set(world.lines_delivered(folder)) == {f"order-{number}" for number in range(world.VALID)}, what
    finally:
        work.close()


def test_the_receiver_has_every_event_and_every_duplicate_has_the_same_id(
    tmp_path: Path, receiver: Receiver, servers: Crashes
) -> None:
    """What arrived more than once carries one webhook-id per event and target."""
    folder = tmp_path / "world"
    world.make_world(folder, receiver.url(""))
    before = len(receiver.requests())
    for stage in world.STAGES:
        if stage == "push":
            assert servers.run(stage, folder, die_at=20) == DIED
        assert servers.run(stage, folder) == 0
    world.set_rules(folder, receiver.url(""), receiver.url(""))
    assert servers.run("recovery", folder, later=world.LATER) == 0

    ids: dict[tuple[str, str], Counter[str]] = {}
    for request in receiver.requests()[before:]:
        event = json.loads(request["body"])["id"]
        ids.setdefault((request["path"], event), Counter())[request["webhook_id"]] += 1

    wanted = {f"order-{number}" for number in range(world.VALID)}
    for path in ("/healthy/all", "/healthy/late", "/bad/refused"):
        assert {event for at, event in ids if at == path} == wanted
    assert all(len(found) == 1 for found in ids.values()), "a duplicate came under another webhook-id"
