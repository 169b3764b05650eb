"""Syncs of a folder that many files were made in: which callers one serves, and which get its error."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventbridge.targets.file.target import FolderSyncs


class Disk:
    """`os.fsync`, which waits until it is released, counts, and can fail."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may = threading.Semaphore(0)
        self.syncs = 0
        self.fails = False

    def fsync(self, _descriptor: int) -> None:
        self.begun.release()
        assert self.may.acquire(timeout=20)
        self.syncs += 1
        if self.fails:
            raise OSError(5, "Input/output error")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(os, "fsync", found.fsync)
    return found


def test_one_sync_serves_all_that_asked_before_it_began(tmp_path: Path, disk: Disk) -> None:
    """A name made while a sync runs may have missed it: those that ask then share the next one."""
    syncs = FolderSyncs()
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(syncs.sync, tmp_path)
        assert disk.begun.acquire(timeout=20)
        rest = [threads.submit(syncs.sync, tmp_path) for _ in range(8)]
        while syncs._folders[tmp_path].asked < 9:
            threading.Event().wait(0.001)
        disk.may.release(9)
        for each in (first, *rest):
            each.result(20)

    assert disk.syncs == 2


def test_a_failed_sync_is_reported_to_all_requesters(tmp_path: Path, disk: Disk) -> None:
    """The kernel reports it once; a later caller gets a sync of its own."""
    syncs = FolderSyncs()
    disk.may.release(1)
    syncs.sync(tmp_path)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(syncs.sync, tmp_path)
        assert disk.begun.acquire(timeout=20)
        assert disk.begun.acquire(timeout=20)
        rest = [threads.submit(syncs.sync, tmp_path) for _ in range(2)]
        while syncs._folders[tmp_path].asked < 4:
            threading.Event().wait(0.001)
        disk.may.release(1)
        first.result(20)
        assert disk.begun.acquire(timeout=20)
        disk.fails = True
        disk.may.release(1)
        failed = [each.exception(20) for each in rest]
    disk.fails = False
    disk.may.release(1)
    syncs.sync(tmp_path)

    assert [type(error) for error in failed] == [OSError, OSError]
    assert disk.syncs == 4
