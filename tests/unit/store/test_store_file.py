"""The local store's own promises: what is synced, what is swept up, and how a full disk is reported."""

from __future__ import annotations

import errno
import os
import resource
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eventbridge import fault_points
from eventbridge.errors import StoreError, UserError
from eventbridge.store.file import INCOMING, FileStore
from eventbridge.store.open import open_store


def fail_at(point: str, number: int) -> None:
    """Have the disk response with an error number where `point` is reached."""

    def hook(reached: str) -> None:
        if reached == point:
            raise OSError(number, os.strerror(number))

    fault_points.install(hook)


def test_every_name_on_the_way_is_synced(tmp_path: Path, synced: list[str]) -> None:
    """A first write syncs the file, then its folder, and the folder above each folder that is new to this process."""
    store = FileStore(tmp_path / "up" / "store")
    store.put("a/b/x", b"1")

    folders = [path for path in synced if INCOMING not in path]
    assert set(folders) == {str(tmp_path / name) for name in (".", "up", "up/store", "up/store/a", "up/store/a/b")}
    assert folders[-1] == str(tmp_path / "up/store/a/b")
    assert [INCOMING in path for path in synced[-2:]] == [True, False]


@pytest.mark.parametrize("verb", ["put", "create"])
def test_a_sync_comes_after_what_it_vouches_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """The file is synced when all its bytes are in it, and its folder when it has its name there."""
    store = FileStore(tmp_path)
    store.put("a/x", b"")
    saw: list[int | list[str]] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        synced = Path(f"/proc/self/fd/{descriptor}").readlink()
        names = sorted(each.name for each in synced.iterdir()) if synced.is_dir() else []
        saw.append(names or os.fstat(descriptor).st_size)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    getattr(store, verb)("a/y", b"few bytes, which a buffer holds")

    assert saw == [31, ["x", "y"]]


def test_a_later_write_syncs_twice(tmp_path: Path, synced: list[str]) -> None:
    """Once its folders are durable a write costs two syncs: the file's and its folder's."""
    store = FileStore(tmp_path)
    store.put("a/x", b"1")
    synced.clear()
    store.put("a/y", b"1")

    assert len(synced) == 2
    assert synced[-1] == str(tmp_path / "a")


def test_folders_made_by_other_processes_are_synced_too(tmp_path: Path, synced: list[str]) -> None:
    """An existing folder need not be durable: its maker may have died before syncing it."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    FileStore(tmp_path).put("a/b/x", b"1")

    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= set(synced)


def test_the_loser_of_a_create_syncs_the_winners_name(tmp_path: Path, synced: list[str]) -> None:
    """A caller that learns that a file exists may rely on it, so it must be durable by then."""
    store = FileStore(tmp_path)
    store.create("a/x", b"1")
    synced.clear()
    store.create("a/x", b"2")

    assert synced[-1] == str(tmp_path / "a")


def test_a_removed_folder_is_created_again(tmp_path: Path, synced: list[str]) -> None:
    """A store emptied by hand while a process runs does not break its next write, nor its durability."""
    store = FileStore(tmp_path)
    store.put("a/b/x", b"1")
    (tmp_path / "a/b/x").unlink()
    (tmp_path / "a/b").rmdir()
    (tmp_path / "a").rmdir()
    synced.clear()
    store.put("a/b/y", b"2")

    assert store.list("") == ["a/b/y"]
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")} <= set(synced)


def test_a_write_leaves_nothing_else_behind(tmp_path: Path) -> None:
    """After writes that succeed, lose or fail there is no private file left."""
    store = FileStore(tmp_path)
    store.put("a/x", b"1")
    store.create("a/x", b"2")
    fail_at("store.put.written", errno.ENOSPC)
    with pytest.raises(StoreError):
        store.put("a/y", b"3")

    assert list((tmp_path / INCOMING).iterdir()) == []


def test_private_files_of_killed_writers_are_removed_after_a_day(tmp_path: Path) -> None:
    """The first write of a process removes private files older than 24 hours, and only those."""
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    incoming = tmp_path / INCOMING
    incoming.mkdir()
    for name, age in (("old", timedelta(hours=25)), ("young", timedelta(hours=23))):
        (incoming / name).write_bytes(b"half")
        os.utime(incoming / name, times=((now - age).timestamp(),) * 2)
    FileStore(tmp_path, clock=lambda: now).put("a/x", b"")

    assert [left.name for left in incoming.iterdir()] == ["young"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "disk is full: free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "read and write access"),
        (errno.EPERM, "hard links"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "kernel's log"),
        (errno.EXDEV, "one file system"),
        (errno.EMFILE, "ulimit"),
        (errno.ELOOP, "link in this path points back"),
        (errno.ENETDOWN, "Check the disk"),
    ],
)
def test_a_refusal_of_the_disk_is_reported_with_a_remedy(tmp_path: Path, number: int, remedy: str) -> None:
    """An error of the disk becomes a StoreError that names the file, the disk's own words and what to do."""
    store = FileStore(tmp_path)
    fail_at("store.put.written", number)

    with pytest.raises(StoreError, match=f"Cannot write 'a/x' in the store: {os.strerror(number)}.*{remedy}"):
        store.put("a/x", b"1")
    assert not store.exists("a/x")


def test_a_disk_that_takes_only_half_a_file_leaves_none(tmp_path: Path) -> None:
    """A write that the kernel cuts short is an error, not a shorter file."""
    store = FileStore(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StoreError, match="File too large"):
            store.put("a/x", bytes(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert store.list("") == []
    assert list((tmp_path / INCOMING).iterdir()) == []


def test_a_file_where_a_folder_is_needed_is_an_error(tmp_path: Path) -> None:
    """Neither a file's name as a folder nor a folder's name as a file passes silently."""
    store = FileStore(tmp_path)
    store.put("a/x", b"1")

    for write in (store.put, store.create):
        with pytest.raises(StoreError, match="remove it"):
            write("a/x/y", b"2")
        with pytest.raises(StoreError, match="remove it"):
            write("a", b"2")
    assert store.list("") == ["a/x"]


def test_a_name_too_long_says_so(tmp_path: Path) -> None:
    """A file name that the file system cannot hold is reported as that."""
    with pytest.raises(StoreError, match="too long"):
        FileStore(tmp_path).put("a/" + "x" * 300, b"")


def test_the_uri_opens_the_same_store(tmp_path: Path) -> None:
    """A store's uri is absolute and leads back to it, whatever characters the folder has."""
    for name in ("plain", "with space", "per%20cent", "hash#mark", "question?", "umlaut-ü"):
        FileStore(tmp_path / name).put("x", name.encode())

        assert open_store(FileStore(tmp_path / name).uri).get("x") == name.encode()


def test_a_relative_folder_is_fixed_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store does not move when the process changes its folder."""
    monkeypatch.chdir(tmp_path)
    store = FileStore(Path("here"))
    monkeypatch.chdir("/")
    store.put("x", b"1")

    assert (tmp_path / "here" / "x").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("file://store", "three slashes"),
        ("file:store", "three slashes"),
        ("/srv/store", "Write file:///absolute"),
        ("", "Write file:///absolute"),
        ("ftp://host/x", "Write file:///absolute"),
        ("file:///srv/a?b", "%3F"),
        ("file:///srv/a#b", "%23"),
    ],
)
def test_a_uri_that_is_no_store_is_refused_with_the_remedy(uri: str, message: str) -> None:
    """An unusable URI is a user error, reported with what to write."""
    with pytest.raises(UserError, match=message):
        open_store(uri)


def test_opening_makes_nothing(tmp_path: Path) -> None:
    """Looking into a store that is not there finds nothing and leaves nothing."""
    store = open_store(f"file://{tmp_path}/none")

    assert store.list("") == []
    assert not store.exists("x")
    assert store.free_bytes() is not None
    assert not (tmp_path / "none").exists()
