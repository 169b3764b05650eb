"""Runs measured code in a separate process, and counts the CPU-seconds of its process tree."""

from __future__ import annotations

import faulthandler
import multiprocessing
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import psutil

_CONTEXT = multiprocessing.get_context("spawn")
_STOP_SECONDS = 20.0


class BenchError(Exception):
    """A measurement cannot be made here; the message says why and what helps."""


class Remote:
    """An object that lives in a process of its own; `call` runs its methods there. Ends with the context."""

    def __init__(self, make: type, *arguments: Any) -> None:
        self._name = make.__name__
        self._ours, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, make, arguments))
        self._process.start()
        theirs.close()
        self._response()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return int(self._process.pid or 0)

    def call(self, method: str, *arguments: Any) -> Any:
        """Return what the method returns; raises BenchError with its traceback if it fails."""
        self._ours.send((method, arguments))
        return self._response()

    def _response(self) -> Any:
        try:
            failure, response = self._ours.recv()
        except EOFError:
            self._process.join(_STOP_SECONDS)
            how = f"ended by itself, exit code {self._process.exitcode}; -9 is lack of memory, -11 a bug"
            raise BenchError(f"The process of {self._name} {how}.") from None
        if failure:
            raise BenchError(failure)
        return response

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ours.close()
        self._process.join(_STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    faulthandler.enable()
    subject: Any = None
    with suppress(EOFError, KeyboardInterrupt):
        method = ""
        while True:
            try:
                response = getattr(subject, method)(*arguments) if subject is not None else None
                if subject is None:
                    subject = make(*arguments)
            except Exception:
                pipe.send((traceback.format_exc(), None))
            else:
                pipe.send(("", response))
            method, arguments = pipe.recv()
    close = getattr(subject, "close", None)
    if close is not None:
        close()


def tree_seconds(pid: int) -> float:
    """Return the CPU-seconds that a process and all its children have used, those that ended included."""
    root = psutil.Process(pid)
    seconds = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])  # user, system, and the same of children that were waited for
    return seconds
