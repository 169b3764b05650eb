"""Starts child processes, exchanges bytes with them over pipes, and ends them; also sets up the child from inside.

A child has no secret in its environment. Its caller can end it at any time, even in a call that never returns.
"""

from __future__ import annotations

import atexit
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final

from eventbridge.errors import InfrastructureError
from eventbridge.processes import check_cancelled, child_environment

#: The time between two checks, during a wait for a response, whether the call is cancelled.
_POLL_MILLISECONDS: Final = 100


class ChildEnded(Exception):
    """The process ended without a response."""


class ChildLate(Exception):
    """The process did not respond in time."""


class Child:
    """A running child process; one thread uses it at a time."""

    def __init__(self, command: Sequence[str], variables: Sequence[str] = ()) -> None:
        # Without a buffer, a fork cannot inherit half a message. In a process group of its own, its children end too.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=child_environment(variables),
            process_group=0,
        )

    def is_running(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def send(self, parts: Sequence[Any]) -> None:
        """Write a message, given as parts of bytes. Raises ChildEnded if the process has ended."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(pipe.fileno(), rest) :]
        except BrokenPipeError:
            raise ChildEnded from None

    def read(self, length: int, ends_at: float) -> bytes:
        """Return the next `length` bytes. Raises ChildEnded, ChildLate after `ends_at`, Cancelled and TimeSpent."""
        pipe = self._process.stdout
        assert pipe is not None
        poll = select.poll()
        poll.register(pipe.fileno(), select.POLLIN)
        found = bytearray()
        while len(found) < length:
            check_cancelled()
            if not poll.poll(_POLL_MILLISECONDS):
                if time.monotonic() > ends_at:
                    raise ChildLate
                continue
            if not (some := os.read(pipe.fileno(), min(length - len(found), 1 << 20))):
                raise ChildEnded
            found += some
        return bytes(found)

    def end(self) -> int:
        """End the process, if it is running, and its children; return its exit code."""
        if self._process.returncode is None:  # until it is waited for, no other process has its id
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._close()
        return self._process.wait()

    def forget(self) -> None:
        """Close the pipes without ending the process; a fork calls this, because the child belongs to its parent."""
        self._process.returncode = 0  # only the parent waits for it
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Children:
    """The children of this process that run one function of a module, by default its `main`."""

    def __init__(
        self,
        module: str,
        what: str,
        *options: str,
        main: str = "main",
        max_idle: int = 2,
        variables: Sequence[str] = (),
    ) -> None:
        """`what` says what the process does; it ends a sentence in messages. `options` are options for Python.

        `variables` are the names of environment variables that the children get in addition to those that all children
        get.
        """
        program = f"import sys; sys.path[:] = sys.argv[1:]; from {module} import {main}; {main}()"
        self._command = [sys.executable, "-W", "ignore", *options, "-c", program]
        self._what = what
        self._variables = variables
        self._max_idle = max_idle
        self._idle: list[Child] = []
        self._lock = threading.Lock()
        atexit.register(self.end_idle)
        os.register_at_fork(after_in_child=self._forget)

    def idle(self) -> Child | None:
        """Return a running child that is not in use, or None if there is none."""
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_running():
                    return child
                child.end()
        return None

    def start(self) -> Child:
        """Return a new child. Raises InfrastructureError if it cannot be started."""
        try:
            return Child([*self._command, *sys.path], self._variables)
        except OSError as error:
            raise InfrastructureError(f"the process that {self._what} cannot be started: {error}") from error

    def give_back(self, child: Child) -> None:
        """Keep a child for the next call, or end it if enough children are idle."""
        with self._lock:
            if len(self._idle) < self._max_idle:
                self._idle.append(child)
                return
        child.end()

    def end_idle(self) -> None:
        """End the children that are not in use."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        while self._idle:
            self._idle.pop().forget()


def open_pipes(address_bytes: int) -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes of requests and responses in a child, whose memory is limited from now on.

    The child ends when the process that started it has ended.
    """
    requests, responses = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output that a library prints is not a response
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, which then closes the pipe
    for what, value in ((resource.RLIMIT_AS, address_bytes), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (lowest, lowest))
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    return requests, responses


def _end_with_the_caller() -> None:
    """End this process and its children when the caller has ended, because a busy process does not read the pipe."""
    poll = select.poll()
    poll.register(0, 0)  # a closed other end is always reported
    poll.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
