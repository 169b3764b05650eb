"""What every target that takes blocks must do besides: each test runs against the real ones and the fake."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from eventbridge import fault_points
from eventbridge.config.target_locations import TargetLocations
from eventbridge.model.outcome import Response
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import BlockTarget
from eventbridge.testing.targets import InMemoryBlockTarget

Clock = Callable[[], datetime]

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Kit:
    """How to open one with a clock, and how to see which payloads reached it, in their order."""

    open: Callable[[Clock], BlockTarget]
    received: Callable[[], list[bytes]]


def file_kit(folder: Path) -> Kit:
    rule = FileFields(name="lines", path=str(folder / "out.jsonl"))

    def open_it(clock: Clock) -> BlockTarget:
        target = open_target("r", rule, lambda _: None, clock, (), TargetLocations((folder,)))  # type: ignore[arg-type, return-value]
        assert isinstance(target, BlockTarget)
        return target

    return Kit(
        open_it, lambda: [*Path(str(rule.path)).read_bytes().splitlines()] if Path(str(rule.path)).exists() else []
    )


def in_memory_kit(_: Path) -> Kit:
    targets: list[InMemoryBlockTarget] = []

    def open_it(clock: Clock) -> BlockTarget:
        targets.append(InMemoryBlockTarget(clock=clock))
        return targets[-1]

    return Kit(open_it, lambda: [request.payload for target in targets for request in target.received])


@pytest.fixture(params=[file_kit, in_memory_kit], ids=["file", "in memory"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    made: Kit = request.param(tmp_path)
    return made


@pytest.fixture(autouse=True)
def _no_faults() -> None:
    fault_points.install(None)


def now() -> datetime:
    return datetime.now(UTC)


def later(seconds: float = 30.0) -> datetime:
    return now() + timedelta(seconds=seconds)


def some(number: int) -> list[bytes]:
    return [json.dumps({"n": n}).encode() for n in range(number)]


def sent(target: BlockTarget, payloads: pa.Array, until: datetime) -> Generator[tuple[int, Response], None, None]:
    """Send payloads, each under an id of its own."""
    ids = pa.array([uuid.uuid4().bytes for _ in payloads], pa.binary(16))
    return target.deliver_block(ids, payloads, until)


def test_the_last_index_is_that_behind_the_last_payload(kit: Kit) -> None:
    """Indexes grow, responses are accepted, and everything is at the target in its order."""
    payloads = some(5_000)
    with closing(kit.open(now)) as target:
        responses = list(sent(target, pa.array(payloads, pa.binary()), later()))
        target.flush()
    indexes = [index for index, _ in responses]

    assert indexes == sorted(set(indexes))
    assert indexes[-1] == 5_000
    assert all(response.accepted for _, response in responses)
    assert kit.received() == payloads


def test_a_part_of_an_array_is_all_that_is_sent(kit: Kit) -> None:
    """Arrow's slices share their buffers with what lies beside them."""
    payloads = some(100)
    with closing(kit.open(now)) as target:
        [*_, (last, _)] = sent(target, pa.array(payloads, pa.binary()).slice(40, 7), later())

    assert last == 7
    assert kit.received() == payloads[40:47]


def test_of_no_payloads_there_is_no_response(kit: Kit) -> None:
    """Nothing to send, and nothing to flush."""
    with closing(kit.open(now)) as target:
        responses = list(sent(target, pa.array([], pa.binary()), later()))
        target.flush()

    assert responses == []


def test_nothing_is_started_after_until(kit: Kit) -> None:
    """Past `until` there is no response, and nothing was sent."""
    with closing(kit.open(now)) as target:
        responses = list(sent(target, pa.array(some(5), pa.binary()), later(-1)))

    assert responses == []
    assert kit.received() == []


def test_until_falls_in_the_middle(kit: Kit) -> None:
    """The last index says exactly what was sent."""
    steps = count()
    payloads = some(20_000)
    with closing(kit.open(lambda: BEGAN + timedelta(milliseconds=next(steps)))) as target:
        array = pa.array(payloads, pa.binary())
        [*_, (last, _)] = sent(target, array, BEGAN + timedelta(milliseconds=7))

    assert 0 < last < 20_000
    assert kit.received() == payloads[:last]


def test_closed_early_it_has_not_sent_the_rest(kit: Kit) -> None:
    """And it takes the rest, as another block, afterwards."""
    payloads = some(20_000)
    array = pa.array(payloads, pa.binary())
    with closing(kit.open(now)) as target:
        with closing(sent(target, array, later())) as responses:
            first, _ = next(responses)
        received = len(kit.received())
        list(sent(target, array.slice(first), later()))
        target.flush()

    assert received == first < 20_000
    assert kit.received() == payloads


def test_the_fault_seam_surrounds_every_send(kit: Kit) -> None:
    """A process that stops before the first send has sent nothing; one that stops right after it has."""

    class Stopped(Exception):
        pass

    def stop_at(point: str) -> Callable[[str], None]:
        def hook(reached: str) -> None:
            if reached == point:
                raise Stopped

        return hook

    array = pa.array(some(3), pa.binary())
    with closing(kit.open(now)) as target:
        fault_points.install(stop_at("target.send"))
        with pytest.raises(Stopped):
            list(sent(target, array, later()))
        before = kit.received()
        fault_points.install(stop_at("target.responded"))
        with pytest.raises(Stopped):
            list(sent(target, array, later()))
    fault_points.install(None)

    assert before == []
    assert kit.received() == some(3)
