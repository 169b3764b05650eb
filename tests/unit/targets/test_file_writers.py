"""Several writers of one file: their lines are never mixed, and none keeps the others out."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from unit.targets.file_delivery import deliver, later, location, now, written

from eventbridge.targets.file.target import FileTarget

_WRITER = """
import sys, uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from eventbridge.config.target_locations import TargetLocations
from eventbridge.targets.file.location import location_of
from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.protocol import Request

name, number = sys.argv[2], int(sys.argv[3])
now = lambda: datetime.now(UTC)
path = Path(sys.argv[1])
target = FileTarget(location_of(str(path), TargetLocations((path.parent,))), clock=now)
print("ready", flush=True)
sys.stdin.readline()
requests = [Request(n, str(uuid.uuid4()), b'{"w":"%s","n":%d,"x":"%s"}' % (name.encode(), n, b"x" * 5000),
                    "application/json") for n in range(number)]
for index, response in target.deliver(requests, now() + timedelta(seconds=60)):
    assert response.accepted, response
target.flush()
print("done", flush=True)
"""


def writer(path: Path, name: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(path), name, str(number)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    """Lines of two writers are never mixed, lost or torn."""
    path = tmp_path / "out.jsonl"
    writers = [writer(path, name, 2000) for name in "ab"]
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in writers:
        process.communicate(timeout=60)

    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [process.returncode for process in writers] == [0, 0]
    assert sorted((line["w"], line["n"]) for line in lines) == [(w, n) for w in "ab" for n in range(2000)]


def test_writers_take_turns(tmp_path: Path) -> None:
    """A target that stays open blocks no other writer between its blocks."""
    path = tmp_path / "out.jsonl"
    began = time.monotonic()
    with closing(FileTarget(location(path), clock=now)) as one, closing(FileTarget(location(path), clock=now)) as other:
        responses = [deliver(target, payload)[0] for target, payload in ((one, b"1"), (other, b"2"), (one, b"3"))]

    assert [response.accepted for response in responses] == [True] * 3
    assert path.read_bytes() == b"1\n2\n3\n"
    assert time.monotonic() - began < 4


def test_a_killed_writer_leaves_a_usable_file(tmp_path: Path) -> None:
    """kill -9 in the middle of writing: the next writer is not locked out and finds, or makes, whole lines."""
    path = tmp_path / "out.jsonl"
    process = writer(path, "killed", 20_000)
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    end = time.monotonic() + 30
    while not path.exists() or path.stat().st_size < 1_000_000:
        assert time.monotonic() < end
    process.kill()
    process.communicate()

    lines = written(path, b'{"w":"next","n":0}').splitlines()
    numbers = [json.loads(line)["n"] for line in lines[:-1]]
    assert numbers == list(range(len(numbers)))
    assert json.loads(lines[-1]) == {"w": "next", "n": 0}


def test_a_lock_that_is_held_is_waited_for_until_the_end(tmp_path: Path) -> None:
    """A writer that holds the lock for long costs time, not the run: the deliveries count as failed."""
    path = tmp_path / "out.jsonl"
    began = time.monotonic()
    with closing(FileTarget(location(path), clock=now)) as target, path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = deliver(target, b"1", until=later(0.3))
        fcntl.flock(lock, fcntl.LOCK_UN)
        free = deliver(target, b"1")

    assert (held[0].accepted, held[0].error_class) == (False, "FileError")
    assert "lock" in str(held[0].error)
    assert free[0].accepted
    assert time.monotonic() - began < 4


def test_a_failed_look_at_the_name_lets_go_of_the_lock(tmp_path: Path) -> None:
    """Where a file stands in the place of the folder, say: others may write the file that was renamed with it."""
    folder, moved = tmp_path / "lines", tmp_path / "moved"
    with closing(FileTarget(location(folder / "out.jsonl"), clock=now)) as target:
        deliver(target, b"1")
        folder.rename(moved)
        folder.write_bytes(b"")
        (response,) = deliver(target, b"2")
        with (moved / "out.jsonl").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert not response.accepted
