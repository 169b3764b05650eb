"""The file target: files that are made, moved and flushed, and what keeps a line from being written."""

from __future__ import annotations

import os
import resource
from contextlib import closing
from pathlib import Path

import pytest
from unit.targets.file_delivery import deliver, location, now, written

from eventbridge.errors import InfrastructureError
from eventbridge.targets.file.target import FileTarget


def test_lines_are_appended_to_a_file_in_a_new_folder(tmp_path: Path) -> None:
    """Folders are made; what was there stays; the order is that of the requests."""
    path = tmp_path / "a" / "b" / "out.jsonl"

    assert written(path, b"1", b"2") == b"1\n2\n"
    assert written(path, b"3") == b"1\n2\n3\n"


def test_a_disk_that_is_full_takes_nothing(tmp_path: Path) -> None:
    """A block that does not fit leaves no part of itself; the deliveries count as failed, and fit later."""
    path = tmp_path / "out.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(FileTarget(location(path), clock=now)) as target:
        deliver(target, b'"first"')
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            failed = deliver(target, *([b'"' + b"x" * 300 + b'"'] * 5))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        between = path.read_bytes()
        target.flush()
        after = deliver(target, b'"last"')

    assert [(response.accepted, response.code, response.error_class) for response in failed] == [
        (False, None, "FileError")
    ] * 5
    assert "too large" in str(failed[0].error)
    assert between == b'"first"\n'
    assert after[0].accepted
    assert path.read_bytes() == b'"first"\n"last"\n'


@pytest.mark.parametrize("kind", ["folder", "below a file", "pipe", "below /proc"])
def test_a_path_that_cannot_be_written(tmp_path: Path, kind: str) -> None:
    """Each delivery gets FileError with the reason and the path; nothing is raised, nothing hangs."""
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
    with closing(FileTarget(location(path), clock=now)) as target:
        responses = deliver(target, b"1", b"2")
        target.flush()

    assert [(response.accepted, response.error_class) for response in responses] == [(False, "FileError")] * 2
    assert str(path) in str(responses[0].error)


def test_a_target_recovers_when_its_path_does(tmp_path: Path) -> None:
    """An obstacle that is removed no longer stops the same target either."""
    path = tmp_path / "out.jsonl"
    path.mkdir()
    with closing(FileTarget(location(path), clock=now)) as target:
        first = deliver(target, b"1")
        path.rmdir()
        second = deliver(target, b"1")

    assert (first[0].accepted, second[0].accepted) == (False, True)


def test_a_file_that_was_moved_away_is_recreated(tmp_path: Path) -> None:
    """Rotation: what is delivered after a rename, or a removal, stands in a new file of the name."""
    path = tmp_path / "out.jsonl"
    with closing(FileTarget(location(path), clock=now)) as target:
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


def test_a_failed_flush_is_reported_once_and_the_target_continues(tmp_path: Path) -> None:
    """What may be lost raises; what is delivered after it stands on a file opened again."""
    path = tmp_path / "out.jsonl"
    reading, writing = os.pipe()
    with closing(FileTarget(location(path), clock=now)) as target:
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
    with closing(FileTarget(location(path), clock=now)) as target:
        deliver(target, b"1")
        target.flush()
        first, synced[:] = synced[:], []
        deliver(target, b"2")
        target.flush()

    assert first[0] == str(path)
    assert set(first[1:]) == {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}
    assert synced == [str(path)]


def test_files_that_are_flushed_together_share_the_sync_of_their_folder(tmp_path: Path, synced: list[str]) -> None:
    """Each is synced by itself, the folder that they are new in once, after them."""
    paths = [tmp_path / f"{n}.jsonl" for n in range(3)]
    targets = [FileTarget(location(path), clock=now) for path in paths]
    for target in targets:
        deliver(target, b"1")
    lost = FileTarget.flush_together(targets)
    for target in targets:
        target.close()

    assert lost == [None, None, None]
    assert synced == [*map(str, paths), str(tmp_path)]


def test_of_files_that_are_flushed_together_one_that_fails_is_reported(tmp_path: Path) -> None:
    """The others are on disk, and what is delivered after it stands on a file opened again."""
    paths = [tmp_path / f"{n}.jsonl" for n in range(3)]
    targets = [FileTarget(location(path), clock=now) for path in paths]
    for target in targets:
        deliver(target, b"1")
    reading, writing = os.pipe()
    os.dup2(writing, _descriptor_of(paths[1]))
    lost = FileTarget.flush_together(targets)
    again = [deliver(target, b"2")[0].accepted for target in targets]
    second = FileTarget.flush_together(targets)
    for target in targets:
        target.close()
    os.close(reading)
    os.close(writing)

    assert [each is not None and str(paths[1]) in each for each in lost] == [False, True, False]
    assert (again, second) == ([True] * 3, [None] * 3)


def test_a_moved_file_that_cannot_be_flushed_is_reported_too(tmp_path: Path) -> None:
    """Lines responded to before a rotation are vouched for, or reported, at the next flush."""
    path = tmp_path / "out.jsonl"
    reading, writing = os.pipe()
    with closing(FileTarget(location(path), clock=now)) as target:
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
    except OSError:  # the descriptor that lists the folder is closed by now
        return False
