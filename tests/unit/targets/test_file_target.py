"""The file target: its lines, several writers, torn tails, and what keeps a line from being written."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
import time
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from eventbridge.errors import InfrastructureError
from eventbridge.model.answer import Answer
from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.lines import json_line, json_lines
from eventbridge.targets.protocol import Request


def now() -> datetime:
    return datetime.now(UTC)


def later(seconds: float = 30.0) -> datetime:
    return now() + timedelta(seconds=seconds)


def deliver(target: FileTarget, *payloads: bytes, until: datetime | None = None) -> list[Answer]:
    requests = [Request(n, str(uuid.uuid4()), payload, "application/json") for n, payload in enumerate(payloads)]
    return [answer for _, answer in target.deliver(requests, until or later())]


def written(path: Path, *payloads: bytes) -> bytes:
    """Deliver payloads with a target of their own and return the whole file."""
    with closing(FileTarget(path, clock=now)) as target:
        assert all(answer.accepted for answer in deliver(target, *payloads))
        target.flush()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (b'{"a": 1.10,  "b":"\xc3\xbc"}', b'{"a": 1.10,  "b":"\xc3\xbc"}\n'),
        (b'{\n  "a": [\r\n1]\n}\n', b'{   "a": [  1] } \n'),
        (b"[1,2]", b"[1,2]\n"),
        (b'"text"', b'"text"\n'),
        (b"null", b"null\n"),
        (b"1" * 5000, b"1" * 5000 + b"\n"),
        (b"1e999999999", b"1e999999999\n"),
        (b"Order 17 shipped", b'"Order 17 shipped"\n'),
        (b"two\nlines", b'"two\\nlines"\n'),
        (b'{"a": NaN}', b'"{\\"a\\": NaN}"\n'),
        (b"{} {}", b'"{} {}"\n'),
        (b"", b'""\n'),
        ("Zoë".encode(), '"Zoë"\n'.encode()),
        (b"\xff\xfe", b'{"data_base64":"//4="}\n'),
        (b"[" * 100_000, b'"' + b"[" * 100_000 + b'"\n'),
    ],
)
def test_one_payload_is_one_line(payload: bytes, line: bytes) -> None:
    """JSON stays as it is on one line; text becomes a JSON string, other bytes base64."""
    assert json_line(payload) == line
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    "payloads",
    [
        [b'{"n":1}', b"2", b'"\xc3\xbc"'],
        [b"{}", b"1 2", b"{}"],
        [b"[1,", b"2]", b"3 4"],
        [b'{"n":\n1}', b'{"n":2}'],
        [b"{}", b'"\xff"'],
        [b"{}", None, b""],
        [b"{}", b'"\\ud800"', b"NaN"],
        [],
    ],
)
def test_a_block_becomes_the_lines_of_its_payloads(payloads: list[bytes | None]) -> None:
    """Also where one of them is no JSON, or has line breaks, or two would make a value together; null is no bytes."""
    array = pa.array([b"x", *payloads, b"\n"], pa.binary()).slice(1, len(payloads))

    assert bytes(json_lines(array)) == b"".join(json_line(payload or b"") for payload in payloads)


def test_lines_are_appended_to_a_file_in_a_new_folder(tmp_path: Path) -> None:
    """Folders are made; what was there stays; the order is that of the requests."""
    path = tmp_path / "a" / "b" / "out.jsonl"

    assert written(path, b"1", b"2") == b"1\n2\n"
    assert written(path, b"3") == b"1\n2\n3\n"


def test_a_line_that_a_crash_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    """Its delivery was never answered: it comes again, whole."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2,"text":"ab')

    assert written(path, b'{"n":2,"text":"abc"}') == b'{"n":1}\n{"n":2,"text":"abc"}\n'


def test_an_unfinished_line_of_any_length_is_cut_off(tmp_path: Path) -> None:
    """The only line, and one longer than what is read at a time."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'"' + b"x" * 200_000)
    assert written(path, b"1") == b"1\n"

    path.write_bytes(b'"first"\n"' + b"x" * 200_000)
    assert written(path, b"1") == b'"first"\n1\n'


@pytest.mark.parametrize("tail", [b"12", b'{"a":1', b"tru", b"\x00\x00\x00", b'"\xc3', b"[1,2", b'"a', b"-"])
def test_what_may_be_the_beginning_of_a_line_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    """A number may be the beginning of a longer one; zeros are what a power loss leaves."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"0\n" + tail)

    assert written(path, b"1") == b"0\n1\n"


@pytest.mark.parametrize("tail", [b'{"a":1}', b'"a"', b"true", b"[]", b"written by hand", "Zoë".encode()])
def test_what_is_whole_or_not_ours_only_gets_its_line_end(tmp_path: Path, tail: bytes) -> None:
    """Nothing that a person wrote is thrown away because a line end is missing."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"0\n" + tail)

    assert written(path, b"1") == b"0\n" + tail + b"\n1\n"


def test_a_tail_is_repaired_also_while_the_file_is_open(tmp_path: Path) -> None:
    """Another writer may die at any time: every block looks at the tail."""
    path = tmp_path / "out.jsonl"
    with closing(FileTarget(path, clock=now)) as target:
        deliver(target, b"1")
        with path.open("ab") as other:
            other.write(b'{"torn')
        deliver(target, b"2")

    assert path.read_bytes() == b"1\n2\n"


_WRITER = """
import sys, uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.protocol import Request

name, number = sys.argv[2], int(sys.argv[3])
now = lambda: datetime.now(UTC)
target = FileTarget(Path(sys.argv[1]), clock=now)
print("ready", flush=True)
sys.stdin.readline()
requests = [Request(n, str(uuid.uuid4()), b'{"w":"%s","n":%d,"x":"%s"}' % (name.encode(), n, b"x" * 5000),
                    "application/json") for n in range(number)]
for index, answer in target.deliver(requests, now() + timedelta(seconds=60)):
    assert answer.accepted, answer
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
    """A target that stays open keeps nobody out between its blocks."""
    path = tmp_path / "out.jsonl"
    began = time.monotonic()
    with closing(FileTarget(path, clock=now)) as one, closing(FileTarget(path, clock=now)) as other:
        answers = [deliver(target, payload)[0] for target, payload in ((one, b"1"), (other, b"2"), (one, b"3"))]

    assert [answer.accepted for answer in answers] == [True] * 3
    assert path.read_bytes() == b"1\n2\n3\n"
    assert time.monotonic() - began < 4


def test_a_killed_writer_leaves_a_file_that_goes_on(tmp_path: Path) -> None:
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


def test_a_disk_that_is_full_takes_nothing(tmp_path: Path) -> None:
    """A block that does not fit leaves no part of itself; the deliveries are answered as failed, and fit later."""
    path = tmp_path / "out.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(FileTarget(path, clock=now)) as target:
        deliver(target, b'"first"')
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            failed = deliver(target, *([b'"' + b"x" * 300 + b'"'] * 5))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        between = path.read_bytes()
        target.flush()
        after = deliver(target, b'"last"')

    assert [(answer.accepted, answer.code, answer.error_class) for answer in failed] == [(False, None, "FileError")] * 5
    assert "too large" in str(failed[0].error)
    assert between == b'"first"\n'
    assert after[0].accepted
    assert path.read_bytes() == b'"first"\n"last"\n'


@pytest.mark.parametrize("kind", ["folder", "below a file", "pipe", "below /proc"])
def test_a_path_that_cannot_be_written(tmp_path: Path, kind: str) -> None:
    """Each delivery is answered FileError with the reason and the path; nothing is raised, nothing hangs."""
    path = tmp_path / "out.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "below a file":
        path.write_text("")
        path = path / "out.jsonl"
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = Path("/proc/eventbridge/out.jsonl")
    with closing(FileTarget(path, clock=now)) as target:
        answers = deliver(target, b"1", b"2")
        target.flush()

    assert [(answer.accepted, answer.error_class) for answer in answers] == [(False, "FileError")] * 2
    assert str(path) in str(answers[0].error)


def test_a_target_recovers_when_its_path_does(tmp_path: Path) -> None:
    """An obstacle that is removed is gone for the same target too."""
    path = tmp_path / "out.jsonl"
    path.mkdir()
    with closing(FileTarget(path, clock=now)) as target:
        first = deliver(target, b"1")
        path.rmdir()
        second = deliver(target, b"1")

    assert (first[0].accepted, second[0].accepted) == (False, True)


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    """Rotation: what is delivered after a rename, or a removal, stands in a new file of the name."""
    path = tmp_path / "out.jsonl"
    with closing(FileTarget(path, clock=now)) as target:
        deliver(target, b"1")
        path.rename(tmp_path / "out.jsonl.1")
        deliver(target, b"2")
        target.flush()
        second = path.read_bytes()
        path.unlink()
        deliver(target, b"3")
        target.flush()

    assert (tmp_path / "out.jsonl.1").read_bytes() == b"1\n"
    assert second == b"2\n"
    assert path.read_bytes() == b"3\n"


def test_a_lock_that_is_held_is_waited_for_until_the_end(tmp_path: Path) -> None:
    """A writer that holds the lock for long costs time, not the run: the deliveries are answered as failed."""
    path = tmp_path / "out.jsonl"
    began = time.monotonic()
    with closing(FileTarget(path, clock=now)) as target, path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = deliver(target, b"1", until=later(0.3))
        fcntl.flock(lock, fcntl.LOCK_UN)
        free = deliver(target, b"1")

    assert (held[0].accepted, held[0].error_class) == (False, "FileError")
    assert "lock" in str(held[0].error)
    assert free[0].accepted
    assert time.monotonic() - began < 4


def test_names_of_one_file_share_a_lock(tmp_path: Path) -> None:
    """A link to the file locks the file itself, and no other file is made."""
    path, link = tmp_path / "out.jsonl", tmp_path / "folder" / "link.jsonl"
    path.write_bytes(b"")
    link.parent.mkdir()
    link.symlink_to(path)

    with closing(FileTarget(link, clock=now)) as target, path.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = deliver(target, b"1", until=later(0.3))
    assert not held[0].accepted
    assert written(link, b"1") == b"1\n"
    assert list(link.parent.iterdir()) == [link]
    assert sorted(tmp_path.iterdir()) == [link.parent, path]


def test_a_flush_that_fails_is_told_once_and_the_target_goes_on(tmp_path: Path) -> None:
    """What may be lost raises; what is delivered after it stands on a file opened again."""
    path = tmp_path / "out.jsonl"
    reading, writing = os.pipe()
    with closing(FileTarget(path, clock=now)) as target:
        deliver(target, b"1")
        os.dup2(writing, _descriptor_of(path))  # fsync of a pipe fails, as that of a broken disk does
        with pytest.raises(InfrastructureError, match="may be lost"):
            target.flush()
        again = deliver(target, b"2")
        target.flush()
    os.close(reading)
    os.close(writing)

    assert again[0].accepted
    assert path.read_bytes() == b"1\n2\n"


def test_a_flush_makes_the_names_durable_too(tmp_path: Path, synced: list[str]) -> None:
    """A new file's folder is synced after its lines, and so is the folder above each new one; once is enough."""
    path = tmp_path / "a" / "b" / "out.jsonl"
    with closing(FileTarget(path, clock=now)) as target:
        deliver(target, b"1")
        target.flush()
        first, synced[:] = synced[:], []
        deliver(target, b"2")
        target.flush()

    assert first[0] == str(path)
    assert set(first[1:]) == {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}
    assert synced == [str(path)]


def test_a_moved_file_that_cannot_be_flushed_is_told_too(tmp_path: Path) -> None:
    """Lines answered before a rotation are vouched for, or reported, at the next flush."""
    path = tmp_path / "out.jsonl"
    reading, writing = os.pipe()
    with closing(FileTarget(path, clock=now)) as target:
        deliver(target, b"1")
        os.dup2(writing, _descriptor_of(path))
        deliver(target, b"2")
        with pytest.raises(InfrastructureError, match="may be lost"):
            target.flush()
    os.close(reading)
    os.close(writing)


def _descriptor_of(path: Path) -> int:
    [found] = [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if _leads_to(entry, path)]
    return found


def _leads_to(entry: Path, path: Path) -> bool:
    try:
        return entry.readlink() == path
    except OSError:  # the descriptor that lists the folder is gone by now
        return False


def test_a_failed_look_at_the_name_lets_go_of_the_lock(tmp_path: Path) -> None:
    """Where a file stands in the place of the folder, say: others may write the file that was renamed with it."""
    folder, moved = tmp_path / "lines", tmp_path / "moved"
    with closing(FileTarget(folder / "out.jsonl", clock=now)) as target:
        deliver(target, b"1")
        folder.rename(moved)
        folder.write_bytes(b"")
        (answer,) = deliver(target, b"2")
        with (moved / "out.jsonl").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert not answer.accepted
