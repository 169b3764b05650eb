"""A process that is forked while another thread matches: the child's matcher works, and the parent's continues."""

from __future__ import annotations

import os
import signal
import threading
import time

import pyarrow as pa

from eventbridge.matching import compile_rules
from eventbridge.matching.pattern import parse_pattern

FORKS, SECONDS = 5, 60.0


def ends_well(child: int) -> bool:
    """Wait for a child for as long as it may take; return whether it exited with 0."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_a_child_forked_while_another_thread_matches_gets_its_own_responses() -> None:
    """The thread is in the middle of a call, that the child never ends."""
    patterns = [parse_pattern({"a": [{"regex": f"[{number}-9]+"}], "b": [{"prefix": "x"}]}) for number in range(10)]
    matcher = compile_rules(patterns)
    events = pa.array([f'{{"a":"{number}","b":"x{number}"}}' for number in range(20_000)])
    expected = matcher.match(events[:1_000])
    stop = threading.Event()

    def match_on() -> None:
        while not stop.is_set():
            matcher.match(events)

    thread = threading.Thread(target=match_on)
    thread.start()
    forked = 0
    good = True
    while forked < FORKS and good:
        if not matcher._lock.locked():
            continue
        child = os.fork()
        if child == 0:
            found = matcher.match(events[:1_000])
            same = found.offsets.tolist() == expected.offsets.tolist() and set(found.rules) == set(expected.rules)
            os._exit(0 if same else 1)
        forked += 1
        good = ends_well(child)
    stop.set()
    thread.join()

    assert good
    assert matcher.match(events[:1_000]).rules.tolist() == expected.rules.tolist()
