"""The cluster policy: it reads pool and weight of a mapped push from the ledger, within its limit, and never raises."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from eventbridge.airflow import policy
from eventbridge.airflow.policy import UNPLANNED, Placement, Placements, place_push
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Instance:
    """The fields of a task instance that the policy reads."""

    dag_id: str = "eventbridge_deliver_orders"
    task_id: str = "push"
    run_id: str = "run-1"
    map_index: int = 0
    pool: str = "default_pool"
    priority_weight: int = 1


@pytest.fixture
def ledger(home: Path) -> Iterator[Ledger]:
    """Open the ledger that the settings name."""
    policy._placements.cache_clear()
    home.mkdir()
    opened = Ledger.open(f"sqlite:///{home}/ledger.sqlite")
    yield opened
    opened.close()


def plan(ledger: Ledger, batch_id: str, runner: str, *pools: str) -> None:
    """Route a normal batch with one chunk per pool, and one that is not handed out."""
    assert ledger.batches.plan(Batch(batch_id, "normal", runner, "orders", "planned", "cafe", NOW), [])
    assert ledger.batches.move(batch_id, "planned", "buffered")
    chunks = [Chunk(batch_id, n, pool, 700 + n, (), 1, 1, map_index=n) for n, pool in enumerate(pools)]
    chunks.append(Chunk(batch_id, len(pools), "eventbridge.low", 1, (), 1, 1, handed_out=False))
    assert ledger.chunks.publish(batch_id, NOW + timedelta(days=10_000), chunks)


def placed(**fields: object) -> Placement:
    """Return the placement of a task instance by the policy."""
    instance = Instance(**fields)  # type: ignore[arg-type]
    place_push(instance)
    return Placement(instance.pool, instance.priority_weight)


def alarms(caplog: pytest.LogCaptureFixture) -> int:
    """Count the alarms that were logged."""
    return sum("ALARM" in record.getMessage() for record in caplog.records)


def test_a_push_gets_the_placement_of_the_chunk_with_its_map_index(ledger: Ledger) -> None:
    """Each map index of a runner's routed batch gets its chunk's pool and weight, regardless of other runners."""
    plan(ledger, "b1", "orders", "eventbridge.rule.big", "eventbridge.high")
    plan(ledger, "b2", "night", "movement")

    assert Placement("eventbridge.rule.big", 700) == placed(map_index=0)
    assert Placement("eventbridge.high", 701) == placed(map_index=1)
    assert Placement("movement", 700) == placed(dag_id="eventbridge_deliver_night", map_index=0)


def test_a_committed_batch_has_no_placements(ledger: Ledger) -> None:
    """The placements are those of the uncommitted batch; after its commit, those of the next one."""
    plan(ledger, "b1", "orders", "eventbridge.rule.big")
    ledger.settlement.begin("b1")
    assert ledger.settlement.commit("b1", "orders", [], NOW, "000000")
    plan(ledger, "b2", "orders", "eventbridge.low")

    assert Placement("eventbridge.low", 700) == placed(run_id="run-2")


@pytest.mark.parametrize(
    "fields",
    [
        {"task_id": "route", "map_index": -1},
        {"map_index": -1},
        {"dag_id": "eventbridge_retry_deliveries"},
        {"dag_id": "foreign_dag"},
    ],
)
def test_everything_but_a_mapped_push_keeps_its_pool_and_weight(ledger: Ledger, fields: dict[str, object]) -> None:
    """Other tasks, unmapped pushes and other DAGs keep the values of their DAG."""
    plan(ledger, "b1", "orders", "eventbridge.rule.big")

    assert Placement("default_pool", 1) == placed(**fields)


def test_an_expansion_asks_the_ledger_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow calls the policy twice for each of 64 pushes within milliseconds; one query serves all."""
    plan(ledger, "b1", "orders", *["eventbridge.high"] * 64)
    asked = []
    query = Placements._query

    def counted(self: Placements, runner: str) -> dict[int, Placement]:
        asked.append(runner)
        return dict(query(self, runner))

    monkeypatch.setattr(Placements, "_query", counted)
    for _ in range(2):
        for index in range(64):
            assert Placement("eventbridge.high", 700 + index) == placed(map_index=index)

    assert asked == ["orders"]


def test_a_cleared_run_does_not_get_its_old_placement(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Placements are cached for one expansion only: if a run is cleared and routes another batch, they are read
    again.
    """
    plan(ledger, "b1", "orders", "eventbridge.rule.big")
    assert Placement("eventbridge.rule.big", 700) == placed()
    ledger.settlement.begin("b1")
    ledger.settlement.commit("b1", "orders", [], NOW, "000000")
    plan(ledger, "b2", "orders", "eventbridge.low")
    monkeypatch.setattr(policy, "_HOLD_SECONDS", 0.0)

    assert Placement("eventbridge.low", 700) == placed()


def test_without_a_batch_a_push_is_unplanned_and_an_alarm_is_logged(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """A push without a routed batch goes to eventbridge.unplanned, below every rule's weight."""
    with caplog.at_level(logging.ERROR):
        assert placed() == UNPLANNED

    assert Placement("eventbridge.unplanned", 100) == UNPLANNED
    assert alarms(caplog) == 1


def test_a_map_index_without_a_chunk_is_unplanned(ledger: Ledger) -> None:
    """If there are more pushes than chunks handed out, the others are unplanned."""
    plan(ledger, "b1", "orders", "eventbridge.rule.big")

    assert placed(map_index=1) == UNPLANNED


def test_the_policy_creates_no_ledger(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reading placements never creates a ledger: an empty one would look like a first start."""
    policy._placements.cache_clear()
    home.mkdir()

    assert placed() == UNPLANNED
    assert list(home.iterdir()) == []
    assert alarms(caplog) == 1


def test_a_locked_ledger_blocks_the_scheduler_for_half_a_second_at_most(
    ledger: Ledger, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A ledger that does not respond blocks the scheduler for 500 ms once, not once per push."""
    plan(ledger, "b1", "orders", *["eventbridge.high"] * 20)
    ledger.close()
    with closing(sqlite3.connect(home / "ledger.sqlite", isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        placements = {placed(map_index=index) for index in range(20)}
        took = time.monotonic() - began

    assert {UNPLANNED} == placements
    assert 0.4 < took < 10 * policy.LIMIT_SECONDS, "20 times that, if each push had read it"
    assert alarms(caplog) == 1


#: Locks a ledger until its standard input is closed.
_LOCK = """
import sqlite3, sys
holder = sqlite3.connect(sys.argv[1], isolation_level=None)
holder.execute("PRAGMA locking_mode = EXCLUSIVE")
holder.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_nothing_is_open_once_the_policy_has_given_up(ledger: Ledger, home: Path) -> None:
    """A worker that the scheduler forks next must not inherit an open ledger file: its locks would be void."""
    plan(ledger, "b1", "orders", "eventbridge.high")
    ledger.close()
    before = asking()
    # In another process: SQLite keeps a file open as long as its own process has a lock on it.
    with subprocess.Popen(
        [sys.executable, "-c", _LOCK, str(home / "ledger.sqlite")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        placement = placed()
        left_open = [file.path for file in psutil.Process().open_files() if file.path.startswith(str(home))]

    assert placement == UNPLANNED
    assert left_open == []
    assert asking() <= before


def asking() -> set[threading.Thread]:
    """Return the threads in which the policy reads a ledger, of all tests."""
    return {each for each in threading.enumerate() if each.name == "eventbridge-policy"}


def test_a_call_that_hangs_is_abandoned() -> None:
    """The limit applies to everything that the driver does, such as connecting to a host that drops packets."""
    before, over = asking(), threading.Event()

    def hangs() -> dict[int, Placement]:
        over.wait()
        return {}

    try:
        with pytest.raises(TimeoutError):
            policy._call_within(0.1, hangs)
        (left,) = asking() - before
    finally:
        over.set()
    left.join()


def test_nothing_makes_the_policy_raise(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It runs in the scheduler's transaction: a settings error, or an object without fields, only logs an alarm."""
    policy._placements.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTBRIDGE_NO_SUCH_SETTING", "1")
        assert Placement("default_pool", 1) == placed()
    place_push(object())

    assert alarms(caplog) == 2
