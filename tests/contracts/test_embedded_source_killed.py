"""The embedded bus among processes, and under kill -9: acknowledged messages are kept, and nothing else is broken."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eventbridge import fault_points
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.testing.sources import messages_of

FORK = multiprocessing.get_context("fork")

# Publishes for ever and writes a line for each publish that was acknowledged.
PUBLISHER = """
import itertools, json, sys
from datetime import UTC, datetime
from pathlib import Path
from eventbridge.sources.embedded.bus import EmbeddedBus

folder, name, size, limit = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
bus = EmbeddedBus(folder, "shop", partitions=2, clock=lambda: datetime.now(UTC))
for number in range(limit):
    bodies = [f"{name}/{number}/{part}" for part in range(size)]
    positions = bus.publish([(body.encode(), body) for body in bodies])
    acknowledged = [[partition.partition_id, offset, body] for (partition, offset), body in zip(positions, bodies)]
    sys.stdout.write(json.dumps(acknowledged) + "\\n")
    sys.stdout.flush()
"""


def now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


def start_publisher(folder: Path, name: str, size: int, limit: int) -> subprocess.Popen[str]:
    """Start a process that publishes `limit` batches of `size` messages."""
    command = [sys.executable, "-c", PUBLISHER, str(folder), name, str(size), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def acknowledged_by(lines: Iterator[str] | list[str]) -> dict[tuple[int, int], str]:
    """Return body by (partition id, offset) of acknowledged messages; a line cut by kill -9 does not count."""
    whole = (json.loads(line) for line in lines if line.endswith("\n"))
    return {(partition_id, offset): body for positions in whole for partition_id, offset, body in positions}


def contents(folder: Path) -> dict[tuple[int, int], str]:
    """Return body by (partition id, offset) of everything on the bus, having seen that the offsets are dense."""
    with EmbeddedBus(folder, "shop", partitions=2, clock=now) as bus:
        found = {}
        for partition, end in bus.ends().items():
            offsets = []
            for message in messages_of(bus.read(partition, 0, end)):
                offsets.append(message.offset)
                found[partition.partition_id, message.offset] = (message.body or b"").decode()
            assert offsets == list(range(end))
        return found


def in_child(work: object) -> int | None:
    """Run `work` in a forked process and return how it ended: 0, or minus the signal."""
    child = FORK.Process(target=work)  # type: ignore[arg-type]
    child.start()
    child.join(30)
    return child.exitcode


@pytest.mark.parametrize("acknowledgements", [1, 3, 20])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, acknowledgements: int) -> None:
    """Killed while it publishes: acknowledged messages are kept, batches are whole, offsets dense, and it continues."""
    publisher = start_publisher(tmp_path, "first", 500, 1_000_000)
    assert publisher.stdout is not None
    lines = [publisher.stdout.readline() for _ in range(acknowledgements)]
    publisher.kill()
    lines += publisher.stdout.readlines()
    publisher.stdout.close()
    publisher.wait()

    reported = acknowledged_by(lines)
    found = contents(tmp_path)
    assert len(reported) >= 500 * acknowledgements
    assert reported.items() <= found.items()
    assert len(found) % 500 == 0
    with EmbeddedBus(tmp_path, "shop", partitions=2, clock=now) as bus:
        (position,) = bus.publish([(b"next", "next")])
        assert (position[0].partition_id, position[1]) not in found


@pytest.mark.parametrize("point", ["bus.publish", "bus.publish.written", "bus.publish.done"])
def test_killed_at_any_point_a_publish_is_atomic(tmp_path: Path, point: str) -> None:
    """kill -9 before the write, between write and commit, and after it: 0, 0 and all of the messages."""
    with EmbeddedBus(tmp_path, "shop", partitions=2, clock=now) as bus:
        bus.publish([(b"before", "a")] * 3)

    def publish_and_die() -> None:
        fault_points.install(lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == point else None)
        EmbeddedBus(tmp_path, "shop", partitions=2, clock=now).publish([(b"x" * 5000, "a")] * 100)

    assert in_child(publish_and_die) == -signal.SIGKILL
    assert len(contents(tmp_path)) == 3 + (100 if point == "bus.publish.done" else 0)


@pytest.mark.parametrize("point", ["bus.commit", "bus.commit.done"])
def test_killed_at_any_point_a_commit_is_atomic(tmp_path: Path, point: str) -> None:
    """kill -9 around a commit of offsets: the old ones or the new ones, and never another group's."""
    partition = Partition("events", "", 0)
    with EmbeddedBus(tmp_path, "shop", partitions=2, clock=now) as bus:
        bus.commit("crm", {partition: 1})

    def commit_and_die() -> None:
        fault_points.install(lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == point else None)
        EmbeddedBus(tmp_path, "shop", partitions=2, clock=now).commit("crm", {partition: 2})

    assert in_child(commit_and_die) == -signal.SIGKILL
    with EmbeddedBus(tmp_path, "shop", partitions=2, clock=now) as bus:
        assert bus.committed("crm") == {partition: 2 if point.endswith("done") else 1}


def test_two_processes_publish_while_a_third_reads(tmp_path: Path) -> None:
    """Offsets are disjoint and dense, every message is at its acknowledged offset, and a reader never sees a hole."""
    publishers = [start_publisher(tmp_path, name, 20, 100) for name in ("left", "right")]
    with EmbeddedBus(tmp_path, "shop", partitions=2, clock=now) as bus:
        seen: dict[Partition, int] = dict.fromkeys(bus.partitions(), 0)
        while sum(seen.values()) < 4_000:
            for partition, end in bus.ends().items():
                offsets = [message.offset for message in messages_of(bus.read(partition, seen[partition], end))]
                assert offsets == list(range(seen[partition], end))
                seen[partition] = end
            assert all(publisher.poll() in (None, 0) for publisher in publishers)
    reported = [acknowledged_by(publisher.communicate()[0].splitlines(keepends=True)) for publisher in publishers]

    assert [publisher.returncode for publisher in publishers] == [0, 0]
    assert [len(positions) for positions in reported] == [2_000, 2_000]
    assert contents(tmp_path) == reported[0] | reported[1]


def test_many_processes_may_make_the_bus_at_once(tmp_path: Path) -> None:
    """The first process completes the file; all publish into the same one."""
    gate = FORK.Barrier(8)

    def open_and_publish() -> None:
        gate.wait()
        with EmbeddedBus(tmp_path / "new", "shop", partitions=2, clock=now) as bus:
            bus.publish([(b"x", None)])

    children = [FORK.Process(target=open_and_publish) for _ in range(8)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)

    assert [child.exitcode for child in children] == [0] * 8
    assert len(contents(tmp_path / "new")) == 8
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["shop.sqlite", "shop.sqlite.lock"]


def test_a_fork_must_open_the_bus_again(tmp_path: Path) -> None:
    """A connection carried over a fork would corrupt the file, so it is refused."""
    with EmbeddedBus(tmp_path, "shop", partitions=2, clock=now) as bus:

        def use_the_parents() -> None:
            try:
                bus.publish([(b"x", None)])
            except BusError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)

        assert in_child(use_the_parents) == 0
        bus.publish([(b"y", None)])

    assert list(contents(tmp_path).values()) == ["y"]


def test_an_acknowledged_message_is_in_the_files(tmp_path: Path) -> None:
    """A copy of the files taken right after the acknowledge holds it: nothing waits in the process's memory."""
    with EmbeddedBus(tmp_path / "live", "shop", partitions=2, clock=now) as bus:
        for number in range(20):
            bus.publish([(f"{number}".encode(), "a")])
            copy = tmp_path / f"copy-{number}"
            copy.mkdir()
            for name in ("shop.sqlite", "shop.sqlite-wal"):
                (copy / name).write_bytes((tmp_path / "live" / name).read_bytes())

            assert sorted(contents(copy).values(), key=int) == [str(each) for each in range(number + 1)]
    with sqlite3.connect(tmp_path / "live" / "shop.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
