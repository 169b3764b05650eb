"""Starts an evaluator process on first use, sends requests to it, and replaces it after it has ended."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from datetime import UTC
from typing import Final, NamedTuple

from eventbridge.errors import InfrastructureError, TransformFailed
from eventbridge.event.cloudevent import Event
from eventbridge.processes import child_environment
from eventbridge.transform.fill import JSON
from eventbridge.transform.jsonata.limits import CPU_SECONDS, EXHAUSTED, REQUEST, RESPONSE, UNDEFINED, VALUE
from eventbridge.transform.rendered import Rendered, Scope

#: The maximum number of seconds to wait for a response; a busy machine may need many times the CPU time.
RESPONSE_SECONDS: Final = 120.0

_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from eventbridge.transform.jsonata.evaluator import main; main()"


class Evaluation(NamedTuple):
    """The result of an evaluation: a status from `limits`, the CPU seconds used, and JSON or a message."""

    status: int
    seconds: float
    payload: bytes


class Evaluator:
    """The process that evaluates expressions; it starts at the first request and serves one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, expression: bytes, scope: bytes, event: bytes) -> Evaluation:
        """Return the response to one request.

        If the process was killed from outside (by the kernel's OOM killer or an operator), the request is repeated
        once. Raises InfrastructureError if the process cannot be started, fails or does not respond in time.
        """
        request = REQUEST.pack(len(expression), len(scope), len(event)) + expression + scope + event
        with self._lock:
            for _ in range(2):
                response = self._ask(request)
                if response is not None:
                    return response
        return Evaluation(EXHAUSTED, CPU_SECONDS, b"the process that evaluates the expression was killed twice")

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            _close_pipes(process)
            process.kill()
            process.wait()

    def forget(self) -> None:
        """Forget the process in a forked child, which must not write to the pipes of its parent's evaluator."""
        process, self._process, self._lock = self._process, None, threading.Lock()
        if process is not None:
            process.returncode = 0  # not a child of this process
            _close_pipes(process)

    def _ask(self, request: bytes) -> Evaluation | None:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            rest = memoryview(request)
            while rest:
                rest = rest[os.write(process.stdin.fileno(), rest) :]
            head = _read(process.stdout.fileno(), RESPONSE.size)
            if head is not None:
                status, seconds, length = RESPONSE.unpack(head)
                payload = _read(process.stdout.fileno(), length)
                if payload is not None:
                    if status == EXHAUSTED:
                        self.close()
                    return Evaluation(status, seconds, payload)
        except BrokenPipeError:
            pass
        except BaseException:  # interrupted before the response, which the next request must not get
            self.close()
            raise
        return self._post_mortem(process)

    def _post_mortem(self, process: subprocess.Popen[bytes]) -> Evaluation | None:
        """Return why a process ended without a response, or None if the expression may not be the cause."""
        code = process.wait()
        self.close()
        if code == -signal.SIGXCPU:
            message = f"the expression took more than {CPU_SECONDS:g} s of CPU time"
            return Evaluation(EXHAUSTED, 2 * CPU_SECONDS, message.encode())
        if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
            return Evaluation(EXHAUSTED, CPU_SECONDS, b"the expression crashed the process that evaluates it")
        if code > 0:
            raise InfrastructureError(f"the process that evaluates JSONata ended with exit code {code}")
        return None


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-S", "-W", "ignore", "-c", _PROGRAM, *sys.path]
    try:
        # without a buffer, so that a fork cannot inherit half a request
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=child_environment()
        )
    except OSError as error:
        raise InfrastructureError(f"the process that evaluates JSONata cannot be started: {error}") from error


def _read(pipe: int, length: int) -> bytes | None:
    """Return `length` bytes, or None if the pipe ends earlier. Raises InfrastructureError after RESPONSE_SECONDS."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    found = bytearray()
    while len(found) < length:
        if not poll.poll(RESPONSE_SECONDS * 1000):
            raise InfrastructureError(f"the process that evaluates JSONata has not responded in {RESPONSE_SECONDS:g} s")
        if not (some := os.read(pipe, length - len(found))):
            return None
        found += some
    return bytes(found)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


EVALUATOR: Final = Evaluator()
atexit.register(EVALUATOR.close)
os.register_at_fork(after_in_child=EVALUATOR.forget)


class JsonataRenderer:
    """Sends the value of an expression whose input is the whole event; undefined becomes null or a failure."""

    def __init__(self, expression: str, *, missing_is_error: bool) -> None:
        self._expression = expression.encode()
        self._missing_is_error = missing_is_error

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the value as JSON. Raises TransformFailed, also above a limit of time or memory, and BudgetSpent."""
        if scope.budget is not None:
            scope.budget.require()
        status, seconds, payload = EVALUATOR.ask(self._expression, _eb_variable(scope), event.body)
        if scope.budget is not None:
            scope.budget.charge(seconds)
        if status == VALUE:
            return Rendered(payload, JSON)
        if status == UNDEFINED:
            if self._missing_is_error:
                raise TransformFailed("the expression has no value for this event")
            return Rendered(b"null", JSON)
        raise TransformFailed(payload.decode())


def _eb_variable(scope: Scope) -> bytes:
    """Return the JSON of `$eb` in an expression, with the values that templates call `eb.rule` and so on."""
    at = scope.ingested_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    names = {"rule": scope.rule, "bus": scope.bus, "target": scope.target, "delivery_id": scope.delivery_id}
    return json.dumps({**names, "ingested_at": at}).encode()
