"""Runs stages of a world in forked processes, several at a time, with a fault in each.

This program reads commands, one JSON object per line, and prints what happens to each. It imports all modules and
loads the compiled matcher before the first fork, because a fork takes milliseconds and an import seconds.

    {"id": 1, "stage": "normal.push", "folder": ..., "fault": {...} or null, ...}   -> run it
    {"resume": 1}                                                                   -> resume it
    {"kill": 1}                                                                     -> kill it, if it has not ended
    <- {"id": 1, "report": "paused"}, {"id": 1, "report": ["look", {...}]}, {"id": 1, "code": 77}
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import sys
import tempfile
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 - pyarrow imports it at its first table
import pyarrow.parquet  # noqa: F401
from faults import runs, world
from faults.fault import REFUSED, Fault, Hook
from faults.kinds import KINDS

from eventbridge.errors import EventBridgeError
from eventbridge.ledger.due import select_targets
from eventbridge.ledger.pending import select_waiting_targets
from eventbridge.routing.warm_up import compile_ahead


@dataclass
class _Child:
    number: int
    pid: int
    reports: int  # the file descriptor of its reports
    go_on: int  # the file descriptor that resumes it
    buffer: bytes = b""


def main() -> None:
    """Serve until standard input ends."""
    compile_ahead()
    world.rule_set()
    world.lane_rule_set()
    select_waiting_targets(world.RUNNER)  # fills the cache of compiled statements
    select_targets(world.RUNNER)
    _live_through()
    if "spark" in sys.argv:
        import pyspark.sql.connect.session  # noqa: F401 - its import takes two seconds, and starts nothing

        import eventbridge.spark.route  # noqa: F401
    gc.freeze()  # otherwise children would copy every page that a collection touches
    children: dict[int, _Child] = {}
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    orders = b""
    while True:
        for key, _ in selector.select():
            if key.fd == 0:
                data = os.read(0, 65536)
                if not data:
                    return _end(children)
                *lines, orders = (orders + data).split(b"\n")
                for line in lines:
                    _obey(json.loads(line), children, selector)
            else:
                _listen(key.data, children, selector)


def _live_through() -> None:
    """Deliver and recover a world in this process, so that no child has to compile the ledger's statements.

    No thread and no open file remains for a fork.
    """
    before, threads = _open_files(), threading.enumerate()
    kind, where = KINDS["normal"], Path.cwd()
    urls = dict.fromkeys(kind.responses, "http://127.0.0.1:1/nobody")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "world"
        world.make_world(folder, "normal", kind.events, world.Size())
        os.chdir(folder)
        for what, hours in (("normal.all", 0.0), ("recovery:2,4", 2.0)):
            runtime = world.open_world(folder, {"urls": urls, "ahead_hours": hours, "spark": ""})
            runs.run(runtime, what, lambda _: None, lambda: None)
            runtime.close()
        os.chdir(where)
    assert threading.enumerate() == threads
    assert _open_files() == before


def _open_files() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


def _end(children: dict[int, _Child]) -> None:
    for child in children.values():
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)


def _obey(order: dict[str, Any], children: dict[int, _Child], selector: selectors.BaseSelector) -> None:
    if "resume" in order:
        os.write(children[order["resume"]].go_on, b"\n")
        return
    if "kill" in order:
        if order["kill"] in children:
            os.kill(children[order["kill"]].pid, signal.SIGKILL)
        return
    reports, report_to = os.pipe()
    wait, go_on = os.pipe()
    pid = os.fork()
    if pid == 0:
        os._exit(_run(order, report_to, wait))
    os.close(report_to)
    os.close(wait)
    child = _Child(order["id"], pid, reports, go_on)
    children[child.number] = child
    selector.register(reports, selectors.EVENT_READ, child)


def _listen(child: _Child, children: dict[int, _Child], selector: selectors.BaseSelector) -> None:
    data = os.read(child.reports, 65536)
    if not data:
        selector.unregister(child.reports)
        _, status = os.waitpid(child.pid, 0)
        os.close(child.reports)
        os.close(child.go_on)
        del children[child.number]
        _print({"id": child.number, "code": os.waitstatus_to_exitcode(status)})
        return
    *lines, child.buffer = (child.buffer + data).split(b"\n")
    for line in lines:
        report = json.loads(line)
        if report == "kill":
            os.kill(child.pid, signal.SIGKILL)
        else:
            _print({"id": child.number, "report": report})


def _print(response: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(response) + "\n")
    sys.stdout.flush()


def _run(order: dict[str, Any], report_to: int, wait: int) -> int:
    folder = Path(order["folder"])
    os.chdir(folder)
    os.dup2(os.open(folder / "errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    write = os.write

    def say(what: Any) -> None:
        write(report_to, json.dumps(what).encode() + b"\n")

    def ask(word: str) -> None:
        say(word)
        if word == "paused":
            os.read(wait, 1)

    gc.disable()  # a child ends before collecting would pay off
    hook = Hook(Fault(**order["fault"]), ask) if order["fault"] else None
    try:
        runtime = world.open_world(folder, order["visit"])
        runs.run(runtime, order["stage"], say, begin=hook.install if hook else lambda: None)
        runtime.close()
    except EventBridgeError as error:
        traceback.print_exc()
        say(["refused", f"{type(error).__name__}: {error}"])
        return REFUSED
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        if hook is not None:
            say(["points", hook.points])
    return 0


if __name__ == "__main__":
    main()
