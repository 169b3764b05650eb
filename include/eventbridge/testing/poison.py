"""Provides events and user programs that kill or block a worker, for tests of the effect on their batch."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import Event
from eventbridge.model import rowset
from eventbridge.routing.budgeted_share import compile_target, route_share
from eventbridge.routing.job import RouteJob, RuleShare, Slice, SliceResult, Task
from eventbridge.routing.task import route_task
from eventbridge.rules import RuleSet, Target
from eventbridge.store.parquet import read_rows
from eventbridge.store.protocol import Store
from eventbridge.transform import Rendered, Renderer, Scope

#: Markers in an event's body that, in this order, kill the Spark that started the worker, end the worker, block the
#: worker, raise an error in the worker, or kill the worker once, after the slice was routed and before its response.
KILLING = b"poison: killing"
DEADLY = b"poison: deadly"
ENDLESS = b"poison: endless"
RAISING = b"poison: raising"
FATAL_ONCE = b"poison: fatal once"
#: The subject of an event that poisons a Program.
POISONED = "poison"


def route_with_poison(store: Store, rule_set: RuleSet, job: RouteJob, task: Task) -> SliceResult:
    """Route like `route_task`, unless a slice contains poison; the JSONATA form is a Program."""
    if isinstance(task, RuleShare):
        return route_share(store, rule_set, job, task, compile_program)
    if not isinstance(task, Slice):
        return route_task(store, rule_set, job, task)
    bodies = _bodies(store, task)
    _take(bodies)
    result = route_task(store, rule_set, job, task)
    if any(FATAL_ONCE in body for body in bodies) and store.create(mark_of(task), b""):
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def mark_of(task: Task) -> str:
    """Return the path of the file that marks that FATAL_ONCE killed a slice's worker."""
    return f"poison/{quote(task.slice_id, safe='')}"


class Program:
    """A renderer for the JSONATA form whose text selects what it does.

    `loop`, `loop on` (which ignores interruptions), `die` and `fail` act on events whose subject is POISONED; all other
    events are rendered.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the event's id, or act as the program's text says."""
        poisoned = event.document.get("subject") == POISONED
        while poisoned and self._text == "loop":
            pass
        while poisoned and self._text == "loop on":
            with suppress(BaseException):
                while True:
                    pass
        if poisoned and self._text == "die":
            os._exit(1)
        if poisoned and self._text == "fail":
            raise TransformFailed("it said so")
        return Rendered(json.dumps({"id": event.id, "rule": scope.rule}).encode(), "application/json")


def compile_program(target: Target) -> Renderer:
    """Compile a target's transform, a program if it is of the JSONATA form."""
    if target.transform.form == "JSONATA":
        return Program(str(target.transform.value))
    return compile_target(target)


def _bodies(store: Store, piece: Slice) -> list[bytes]:
    rows = read_rows(store, piece.file, rowset.encode(range(piece.row_from, piece.row_to)), columns=["body"])
    bodies: list[bytes] = rows["body"].to_pylist()
    return bodies


def _take(bodies: list[bytes]) -> None:
    for body in bodies:
        if DEADLY in body:
            os._exit(1)
        if KILLING in body:
            os.kill(_spark(), signal.SIGKILL)
            os._exit(1)
        while ENDLESS in body:
            time.sleep(1)
        if RAISING in body:
            raise RuntimeError("poisoned")


def _spark() -> int:
    """Return the process id of the Java process that started this worker's daemon."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
