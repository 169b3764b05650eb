"""A transaction of the ledger that is stopped anywhere is as if it had never begun, or as if it had ended."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from contracts.ledger_samples import (
    PARTITIONS,
    Clock,
    a_batch,
    a_chunk,
    a_file,
    a_pending,
    a_retry_batch,
    after,
    register,
    route,
    settle,
    some_ranges,
)

from eventbridge import fault_points
from eventbridge.ledger import Ledger
from eventbridge.ledger.chunks import ChunkEnd
from eventbridge.model.chunk import LiveClaim
from eventbridge.policy.breaker import Count, Tally
from eventbridge.policy.operational_event import version_on_hold_event

STOPPED = 77  # exit code of a process that a hook has ended


class Change(NamedTuple):
    """A method that changes the ledger, and what must be there before it."""

    prepare: Callable[[Ledger], object]
    change: Callable[[Ledger], object]


def settled_with_pending(ledger: Ledger) -> None:
    """Have a batch that left three rows pending, and offsets where its ranges start."""
    register(ledger)
    settle(ledger)
    ledger.pending.add([a_pending(1), a_pending(2), a_pending(3, hold_reason="pool closed")])


def taken(ledger: Ledger) -> None:
    """Have a retry batch that took two rows and is settling."""
    settled_with_pending(ledger)
    ledger.pending.take(a_retry_batch(), [a_chunk(0, "retry-1")], [1, 2])
    ledger.settlement.begin("retry-1")


def buffered(ledger: Ledger) -> None:
    """Have a batch that is ready to be routed."""
    ledger.batches.plan(a_batch(), some_ranges())
    ledger.batches.move("batch-1", "planned", "buffered")


def claimed(ledger: Ledger) -> None:
    """Have a chunk that is being worked on."""
    route(ledger)
    ledger.chunks.claim("batch-1", 0, "host:1")


ON_HOLD = version_on_hold_event("late", "it loops", "cafe", after(0))

CHANGES = {
    "register_partitions": Change(lambda ledger: None, register),
    "identify_bus": Change(
        register, lambda ledger: ledger.offsets.identify_bus("flights", {PARTITIONS[0].topic: "log-1"})
    ),
    "plan_batch": Change(lambda ledger: None, lambda ledger: ledger.batches.plan(a_batch(), some_ranges())),
    "record_file": Change(buffered, lambda ledger: ledger.files.record(a_file(), "buffered")),
    "move_batch": Change(buffered, lambda ledger: ledger.batches.move("batch-1", "buffered", "routed")),
    "publish_chunks": Change(
        buffered, lambda ledger: ledger.chunks.publish("batch-1", after(60), [a_chunk(number) for number in range(64)])
    ),
    "claim_chunk": Change(route, lambda ledger: ledger.chunks.claim("batch-1", 0, "host:1")),
    "record_segment": Change(claimed, lambda ledger: ledger.chunks.record_segment(a_file(kind="outcome"), 0, 1)),
    "record_late_segment": Change(claimed, lambda ledger: ledger.chunks.record_late_segment(a_file(kind="outcome"))),
    "renew_claim": Change(claimed, lambda ledger: ledger.chunks.renew_claim("batch-1", 0, 1, after(6))),
    "release_claim": Change(
        lambda ledger: route(ledger) or ledger.chunks.claim("batch-1", 0, "host:1", after(6)),
        lambda ledger: ledger.chunks.release_claim("batch-1", LiveClaim(0, 1, "host:1", after(6))),
    ),
    "end_chunk": Change(claimed, lambda ledger: ledger.chunks.end("batch-1", 0, 1, ChunkEnd("error", 1, 2, "why"))),
    "begin_settlement": Change(claimed, lambda ledger: ledger.settlement.begin("batch-1")),
    "add_pending": Change(settle, lambda ledger: ledger.pending.add([a_pending(number / 10) for number in range(500)])),
    "plan_taken": Change(
        settled_with_pending, lambda ledger: ledger.pending.take(a_retry_batch(), [a_chunk(0, "retry-1")], [1, 2])
    ),
    "commit_batch": Change(
        taken, lambda ledger: ledger.settlement.commit("retry-1", "flights", some_ranges(), after(9), "000000")
    ),
    "mark_bus_committed": Change(
        lambda ledger: (
            settled_with_pending(ledger) or ledger.settlement.commit("batch-1", "flights", [], after(9), "000000")
        ),
        lambda ledger: ledger.settlement.mark_bus_committed("batch-1"),
    ),
    "set_target_status": Change(
        lambda ledger: ledger.targets.set_status("late", "crm", "degraded", "slow"),
        lambda ledger: ledger.targets.set_status("late", "crm", "disabled", "gone"),
    ),
    "note_attempts": Change(
        lambda ledger: ledger.targets.record_attempts([Tally("late", "crm", {1: Count(1, 1)})]),
        lambda ledger: ledger.targets.record_attempts(
            [Tally("late", "crm", {int(after(0).timestamp()): Count(20, 20)})]
        ),
    ),
    "claim_probe": Change(
        lambda ledger: ledger.targets.set_status("late", "crm", "degraded", "slow"),
        lambda ledger: ledger.targets.claim_probe("late", "crm", after(20)),
    ),
    "lease_tokens": Change(lambda ledger: None, lambda ledger: ledger.targets.lease_tokens("late", "crm", 10.0, 4)),
    "queue_operational_events": Change(lambda ledger: None, lambda ledger: ledger.operational_events.queue([ON_HOLD])),
    "drop_operational_events": Change(
        lambda ledger: ledger.operational_events.queue([ON_HOLD]),
        lambda ledger: ledger.operational_events.drop([ON_HOLD.event_id]),
    ),
    "hold_pending": Change(settled_with_pending, lambda ledger: ledger.pending.hold("late", "crm", "target disabled")),
    "dead_letter_pending": Change(
        lambda ledger: settled_with_pending(ledger) or ledger.pending.hold("late", "crm", "rule removed"),
        lambda ledger: ledger.pending.dead_letter("late", "crm", "rule removed"),
    ),
    "release_pending": Change(settled_with_pending, lambda ledger: ledger.pending.release("late", "crm")),
    "release_expired": Change(
        lambda ledger: settled_with_pending(ledger) or ledger.targets.set_status("late", "crm", "disabled", "gone"),
        lambda ledger: ledger.pending.release_expired(after(3600)),
    ),
}


def contents(file: Path) -> dict[str, list[Any]]:
    """Return every row of every table."""
    connection = sqlite3.connect(file)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}
    connection.close()
    return found


class Case:
    """A change with what the ledger holds before and after it, and copies of the ledger to try it on."""

    def __init__(self, change: Change, empty: Path, folder: Path) -> None:
        self._change = change
        self.folder = folder
        self._prepared = folder / "prepared.sqlite"
        shutil.copyfile(empty, self._prepared)
        self._run(self._prepared, change.prepare)
        self.before = contents(self._prepared)
        points: list[str] = []
        self.after = contents(self.tried("whole", points.append))
        self.points = points

    def copy(self, name: str) -> Path:
        """Return a copy of the prepared ledger."""
        file = self.folder / f"{name}.sqlite"
        shutil.copyfile(self._prepared, file)
        return file

    def tried(self, name: str, hook: Callable[[str], None]) -> Path:
        """Return a copy of the ledger after the change was made on it under a hook."""
        file = self.copy(name)
        ledger = Ledger.open(f"sqlite:///{file}", Clock())
        fault_points.install(hook)
        try:
            self._change.change(ledger)
        finally:
            fault_points.install(None)
            ledger.close()
        return file

    def again(self, file: Path) -> None:
        """Make the change on a ledger on which it was stopped."""
        self._run(file, self._change.change)

    @staticmethod
    def _run(file: Path, change: Callable[[Ledger], object]) -> None:
        ledger = Ledger.open(f"sqlite:///{file}", Clock())
        change(ledger)
        ledger.close()


@pytest.fixture(scope="module")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of an empty ledger."""
    file = tmp_path_factory.mktemp("ledger") / "empty.sqlite"
    Ledger.open(f"sqlite:///{file}", Clock()).close()
    return file


@pytest.fixture(scope="module", params=CHANGES)
def case(request: pytest.FixtureRequest, empty_ledger: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return each change, one by one."""
    return Case(CHANGES[request.param], empty_ledger, tmp_path_factory.mktemp(request.param))


def at(number: int, act: Callable[[], None]) -> Callable[[str], None]:
    """Return a hook that acts when the `number`-th point is reached."""
    left = iter(range(number))

    def hook(point: str) -> None:
        if next(left, None) is None:
            act()

    return hook


def test_a_change_is_one_transaction(case: Case) -> None:
    """Each method reaches a point before each statement, and one before and one after its only commit."""
    *statements, commit, done = case.points

    assert case.before != case.after
    assert set(statements) <= {"ledger.begin", "ledger.execute", "ledger.select"}
    assert (commit, done) == ("ledger.commit", "ledger.commit.done")
    assert len(statements) >= 2


def test_an_error_anywhere_undoes_the_change(case: Case) -> None:
    """An exception at the n-th point, for every n: all was undone, or it came after the commit and nothing was."""
    for number, point in enumerate(case.points):

        def fail() -> None:
            raise RuntimeError

        with pytest.raises(RuntimeError):
            case.tried("failed", at(number, fail))
        file = case.folder / "failed.sqlite"
        stopped = contents(file)

        assert stopped == (case.after if point == "ledger.commit.done" else case.before)
        case.again(file)
        assert contents(file) == case.after or point == "ledger.commit.done"


def test_a_process_killed_anywhere_leaves_before_or_after(case: Case) -> None:
    """The end of the process at the n-th point, for every n, likewise; no clean-up and no wait is needed."""
    for number, point in enumerate(case.points):
        file = case.folder / "killed.sqlite"
        child = os.fork()
        if child == 0:
            try:
                case.tried("killed", at(number, lambda: os._exit(STOPPED)))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == STOPPED
        assert contents(file) == (case.after if point == "ledger.commit.done" else case.before)
        for rest in file.parent.glob("killed.sqlite*"):
            rest.unlink()


def test_a_ledger_is_usable_after_an_error(empty_ledger: Path, tmp_path: Path) -> None:
    """The ledger whose transaction was stopped in the middle is usable at once, by itself and by others."""
    file = shutil.copyfile(empty_ledger, tmp_path / "ledger.sqlite")
    ledger = Ledger.open(f"sqlite:///{file}", Clock())
    other = Ledger.open(f"sqlite:///{file}", Clock(), busy_timeout_seconds=0.1)

    def fail() -> None:
        raise RuntimeError

    fault_points.install(at(2, fail))
    with pytest.raises(RuntimeError):
        ledger.batches.plan(a_batch(), some_ranges())
    fault_points.install(None)

    assert other.batches.plan(a_batch("batch-2"), some_ranges())
    assert not ledger.batches.plan(a_batch(), some_ranges())
    assert ledger.offsets.committed("flights") == {}
    ledger.offsets.register("flights", "flights-bus", {PARTITIONS[0]: 1})
    assert other.offsets.committed("flights") == {PARTITIONS[0]: 1}
