"""Calls a function whose cost depends on a caller's input, in a process that ends at limits of time and memory.

The process ends even in a loop that checks no clock, or in a library that returns late. It also ends when the call is
cancelled.
"""

from __future__ import annotations

import pickle
import resource
import signal
import struct
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from eventbridge.child_process import Child, ChildEnded, ChildLate, Children, open_pipes
from eventbridge.errors import EventBridgeError, InfrastructureError, UserError
from eventbridge.processes import TimeSpent

_T = TypeVar("_T")

#: The maximum address space of the process, including Python and EventBridge's modules.
MEMORY_BYTES: Final = 1 << 30
#: The maximum elapsed time of a call, in seconds, however much processor time it may use.
CLOCK_SECONDS: Final = 60.0
#: The process ends this many seconds after CLOCK_SECONDS if its caller has not ended it.
_GRACE_SECONDS: Final = 5.0
#: A process with more resident memory than this after a call is not reused, because Python seldom returns memory.
_KEPT_BYTES: Final = 192 << 20
#: The maximum time, in seconds, that the process may take to start. It is long enough for a busy machine.
_START_SECONDS: Final = 60.0

#: The kind of a message, and the length of its pickled body.
_HEAD: Final = struct.Struct(">cQ")
#: The kinds of messages. A call goes to the process and has a function, its arguments and its time limits. The others
#: come from the process: ready, the result, an EventBridgeError, the traceback of another exception, out of memory.
_CALL, _READY, _RESULT, _RAISED, _FAILED, _MEMORY = b"C", b"A", b"R", b"E", b"F", b"M"

children: Final = Children("eventbridge.bounded_call", "checks a caller's input")


def call_bounded(function: Callable[..., _T], *arguments: Any, seconds: float, remedy: str) -> _T:
    """Return the result of a module's function for arguments that can be pickled, or raise its EventBridgeError.

    The limits are `seconds` of processor time (JSONata's not included), CLOCK_SECONDS of elapsed time, and
    MEMORY_BYTES. The process gets no environment variable that may hold a secret. Raises UserError, whose text ends in
    `remedy`, if the process crashes or reaches a limit, InfrastructureError if it does not start, RuntimeError for any
    other exception, and Cancelled if the call is cancelled.
    """
    message = pickle.dumps((function, arguments, seconds, CLOCK_SECONDS))
    try:
        kind, content = _response(message)
    except ChildLate:
        raise TimeSpent(f"checking the input took more than {CLOCK_SECONDS:g} s. {remedy}") from None
    except _CallEnd as ended:
        if ended.code == -signal.SIGPROF:
            raise TimeSpent(f"checking the input took more than {seconds:g} s of processor time. {remedy}") from None
        raise UserError(f"checking the input crashed its process, or used too much memory. {remedy}") from None
    if kind == _MEMORY:
        raise UserError(f"checking the input used more than {MEMORY_BYTES >> 20:,} MiB of memory. {remedy}")
    if kind == _FAILED:
        raise RuntimeError(content.decode())
    result = pickle.loads(content)  # the process runs only EventBridge's code
    if kind == _RAISED:
        raise result
    returned: _T = result
    return returned


class _CallEnd(Exception):
    """The process ended without a response."""

    def __init__(self, code: int) -> None:
        self.code = code


def _response(message: bytes) -> tuple[bytes, bytes]:
    """Return the kind and body of the response. Raises ChildLate or _CallEnd.

    The call is repeated once, because an idle process may just have ended, and any process may be killed from outside.
    """
    for is_last in (False, True):
        child = children.idle() or _start()
        try:
            response = _call(child, message)
        except ChildEnded:
            code = child.end()
            if is_last or code in (-signal.SIGPROF, -signal.SIGSEGV, -signal.SIGABRT):
                raise _CallEnd(code) from None
        except BaseException:
            child.end()
            raise
        else:
            children.give_back(child)
            return response
    raise AssertionError("the last iteration returns or raises")


def _start() -> Child:
    child = children.start()
    try:
        child.read(_HEAD.size, time.monotonic() + _START_SECONDS)
    except (ChildEnded, ChildLate):
        code = child.end()
        raise InfrastructureError(
            f"the process that checks a caller's input did not start, exit code {code}. Send the call again"
        ) from None
    except BaseException:
        child.end()
        raise
    return child


def _call(child: Child, message: bytes) -> tuple[bytes, bytes]:
    ends_at = time.monotonic() + CLOCK_SECONDS
    child.send((_HEAD.pack(_CALL, len(message)), message))
    kind, length = _HEAD.unpack(child.read(_HEAD.size, ends_at))
    return kind, child.read(length, ends_at)


def main() -> None:
    """Respond to calls in the child until the pipe is closed, or a call has made this process large."""
    requests, responses = open_pipes(MEMORY_BYTES)
    _write(responses, _READY, b"")
    while len(head := requests.read(_HEAD.size)) == _HEAD.size:
        kind, content = _handle(requests.read(_HEAD.unpack(head)[1]))
        _write(responses, kind, content)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if kind == _MEMORY or _resident_bytes() > _KEPT_BYTES:
            return


def _handle(message: bytes) -> tuple[bytes, bytes]:
    try:
        function, arguments, processor_seconds, clock_seconds = pickle.loads(message)  # imports the function's module
        signal.setitimer(signal.ITIMER_REAL, clock_seconds + _GRACE_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, processor_seconds)  # its signal ends this process, whatever it does
        return _RESULT, pickle.dumps(function(*arguments))
    except MemoryError:
        return _MEMORY, b""
    except EventBridgeError as error:
        return _RAISED, pickle.dumps(error)
    except Exception:
        return _FAILED, traceback.format_exc().encode("utf-8", "replace")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _resident_bytes() -> int:
    """Return the memory of this process; `ru_maxrss` would begin with the memory of the process that started it."""
    with Path("/proc/self/statm").open("rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _write(pipe: BinaryIO, kind: bytes, content: bytes) -> None:
    pipe.write(_HEAD.pack(kind, len(content)) + content)
    pipe.flush()
