"""The local store under kill -9 and among processes: the state of a file when its writer has ended."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from eventbridge import fault_points
from eventbridge.store.file import INCOMING, FileStore

FORK = multiprocessing.get_context("fork")


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a process of its own and return how that ended: 0, or minus the signal."""
    child = FORK.Process(target=work)
    child.start()
    child.join(30)

    assert child.exitcode is not None
    return child.exitcode


@pytest.mark.parametrize("method", ["put", "create"])
def test_killed_at_any_point_a_file_is_whole_or_not_there(tmp_path: Path, method: str) -> None:
    """kill -9 at the n-th point of a write, for every n: a reader never sees half a file or the writer's own."""
    content = os.urandom(300_000)
    exit_code, number = -signal.SIGKILL, 0
    while exit_code == -signal.SIGKILL:
        store = FileStore(tmp_path / str(number))

        def write_and_die(store: FileStore = store, number: int = number) -> None:
            left = iter(range(number))

            def hook(point: str) -> None:
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)

            fault_points.install(hook)
            getattr(store, method)("a/x", content)

        exit_code = in_child(write_and_die)

        assert store.list("") in ([], ["a/x"])
        if store.exists("a/x"):
            assert store.get("a/x") == content
        store.put("a/x", b"next")
        assert store.get("a/x") == b"next"
        number += 1

    assert exit_code == 0
    assert number >= 4


def test_killed_in_the_middle_of_writing_nothing_shows(tmp_path: Path) -> None:
    """Killed while the bytes are on their way: the file does not exist, and the draft blocks no later writer."""
    store = FileStore(tmp_path)
    store.put("a/first", b"")

    def write_and_die() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the kernel kills a process that writes beyond the limit
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        store.put("a/x", bytes(3_000_000))

    assert in_child(write_and_die) == -signal.SIGXFSZ
    assert [left.stat().st_size for left in (tmp_path / INCOMING).iterdir()] == [1_000_000]
    assert store.list("") == ["a/first"]
    assert not store.exists("a/x")


def test_one_of_sixteen_processes_wins(tmp_path: Path) -> None:
    """Conditional create holds between processes, from the very first file of a store on."""
    start = FORK.Barrier(16)
    responses = FORK.Queue()

    def create(writer: int) -> None:
        store = FileStore(tmp_path / "new")
        start.wait()
        responses.put((store.create("runners/r.json", b"writer %d" % writer), writer))

    writers = [FORK.Process(target=create, args=(number,)) for number in range(16)]
    for writer in writers:
        writer.start()
    winners = [number for won, number in (responses.get(timeout=30) for _ in writers) if won]
    for writer in writers:
        writer.join()

    assert len(winners) == 1
    assert FileStore(tmp_path / "new").get("runners/r.json") == b"writer %d" % winners[0]
