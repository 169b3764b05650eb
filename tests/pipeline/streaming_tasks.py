"""Runs streaming tasks for tests in a thread or a process, with short batches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.delivering import RUNNER, Sending, rules

from eventbridge import fault_points
from eventbridge.runtime.stop import Stop
from eventbridge.streaming.lease import UNBOUNDED, Bounds
from eventbridge.streaming.task import deliver_streaming

#: The Python code that the command `eventbridge` runs.
_COMMAND = "import sys; from eventbridge.cli import main; sys.exit(main())"


def until(reached: Callable[[], Any], seconds: float = 60) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it never came"
        threading.Event().wait(0.01)


@contextmanager
def a_streaming_task(
    sending: Sending, *, opens: bool = True, at_once: bool = False, bounds: Bounds = UNBOUNDED
) -> Iterator[None]:
    """Deliver in a thread during the block, which starts once a batch is open or, unless `opens`, the lease is held.

    If `at_once`, the streaming task does not wait for responses in flight at the end of the block.
    """
    stop = Stop()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            deliver_streaming(sending.runtime, RUNNER, stop, bounds)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="streaming task under test")
    thread.start()
    try:
        ledger = sending.runtime.ledger
        until(lambda: failed or (ledger.batches.find(state="open") if opens else ledger.streaming.lease(RUNNER)))
        yield
    finally:
        (stop.set_at_once if at_once else stop.set)()
        thread.join()
        assert failed == []


@contextmanager
def a_close_that_waits(
    at: Callable[[str], bool] = lambda point: point == "bus.commit",
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Block the first commit, or the first call `at` a point; yield an event that is set when it began, and one that
    lets it continue.
    """
    began, resume = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if not began.is_set() and at(point):
            began.set()
            assert resume.wait(120)

    fault_points.install(hold)
    try:
        yield began, resume
    finally:
        resume.set()
        fault_points.install(None)


@contextmanager
def a_process(sending: Sending, first: str = "", **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """Deliver in a separate process that first runs the code `first`; the block starts once a batch is open."""
    own = {
        "EVENTBRIDGE_HOME": str(sending.site.folder),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(sending.site.folder),
        "EVENTBRIDGE_RULES_FOLDER": str(sending.site.folder / "rules"),
    }
    child = subprocess.Popen(
        [sys.executable, "-c", f"{first}\n{_COMMAND}", "deliver", "--runner", RUNNER, "--streaming"],
        env=os.environ | sending.site.environ | own | environ,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: sending.runtime.ledger.batches.find(state="open"), 60)
        yield child
    finally:
        child.kill()
        child.communicate()


def ids(sending: Sending) -> Counter[str]:
    """Return how many times each delivery was received."""
    return Counter(each["webhook_id"] for each in sending.requests())


def quick_batches(sending: Sending, **targets: str) -> None:
    """Write the rule with a runner whose batches close after a second of load."""
    sending.write(rules(targets) + f"runners:\n  {RUNNER}: {{mode: streaming, streaming: {{batch_interval: 1s}}}}\n")


def crm_requests(sending: Sending) -> list[Any]:
    """Return the requests that the target `crm` received."""
    return [each for each in sending.requests() if each["path"].endswith("crm")]
