"""Calls the code of plug-ins, so that code that raises or hangs, or leaves threads behind, costs only its caller.

A plug-in is a package that adds a type of target, source or transform by an entry point. Its code runs in EventBridge's
process, in threads of its own, which their callers give up after a time limit. Python cannot end a thread, so one that
hangs remains. A type that leaves too many threads in a process gets no further calls there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final
from weakref import WeakSet

from eventbridge.errors import EventBridgeError, PlugInError, UserError

#: The maximum number of calls of one type that hang in this process; with so many, no further call begins.
MAX_HANGING: Final = 8
#: The maximum number of threads of one type that run in this process after what started them was closed.
MAX_THREADS: Final = 64
#: The maximum duration of a call, in seconds, if its caller has no other limit.
CALL_SECONDS: Final = 10.0
#: The maximum number of characters of an error of a plug-in that messages show, and of which secrets are removed.
_SHOWN: Final = 500
_VEILED: Final = 100_000
_THREAD: Final = "plug-in"


@dataclass(frozen=True)
class PlugIn:
    """A type that an installed package provides; `kind` is target, source or transform."""

    kind: str
    type: str
    package: str
    version: str

    def __str__(self) -> str:
        return f"the {self.kind} type {self.type!r} of the package {self.package} {self.version}".rstrip()

    def error(self, what: str) -> PlugInError:
        """Return an error about this type; `what` continues the sentence, as in `returned None`."""
        return PlugInError(f"{self} {what}")

    def raised(self, error: BaseException, veil: Callable[[str], str] = str) -> PlugInError:
        """Return the error for an exception that its code raised; `veil` removes secrets from its text."""
        try:
            text = f"{type(error).__name__}: {error}"
        except Exception:  # of its own __str__
            text = type(error).__name__
        text = veil(text[:_VEILED].encode("utf-8", "backslashreplace").decode()).removesuffix(": ")
        return self.error(f"raised {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}")


@dataclass
class _Left:
    """What one type has left in this process: calls that hang, and threads that outlived what started them."""

    hanging: int = 0
    closing: dict[OpenedPlugIn, float] = field(default_factory=dict)  # when each close began
    threads: WeakSet[threading.Thread] = field(default_factory=WeakSet)

    def refuse_if_too_much(self, plug_in: PlugIn) -> None:
        """Raise PlugInError if the type gets no further calls."""
        late = time.monotonic() - CALL_SECONDS
        with _lock:
            threads = sum(each.is_alive() for each in self.threads)
            hanging = self.hanging + sum(began < late for began in self.closing.values())
        if hanging >= MAX_HANGING:
            raise plug_in.error(f"has {hanging} calls that do not return. It gets no more until one of them does")
        if threads >= MAX_THREADS:
            raise plug_in.error(f"has left {threads} threads running. It gets no more calls until they end")


_lock: Final = threading.Lock()
_left: Final[dict[PlugIn, _Left]] = {}


class Call:
    """A call in the thread of an `OpenedPlugIn`. Once it has ended, it is in the queue with which it began."""

    def __init__(
        self, plug_in: PlugIn, function: Callable[[], Any], ended: SimpleQueue[Call], veil: Callable[[str], str]
    ) -> None:
        self._plug_in = plug_in
        self._veil = veil
        self._function = function
        self._ended = ended
        self._result: Any = None
        self._error: BaseException | None = None
        self._has_ended = self._is_given_up = False
        self.began = time.monotonic()

    def result(self) -> Any:
        """Return the result of a call that has ended; raises its EventBridgeError, or PlugInError for any other."""
        if self._error is None:
            return self._result
        if type(self._error) is UserError:  # as `setup.error` returns it, with a text of the plug-in
            raise UserError(self._veil(str(self._error)))
        if isinstance(self._error, EventBridgeError):
            raise self._error
        raise self._plug_in.raised(self._error, self._veil)

    def give_up(self) -> PlugInError:
        """Return the error for a call for which its caller waits no longer."""
        with _lock:
            if not self._has_ended:
                self._is_given_up = True
                _left[self._plug_in].hanging += 1
        return self._plug_in.error(f"has not returned after {time.monotonic() - self.began:.0f} s")

    def run(self) -> None:
        """Make the call in this thread; never raises."""
        try:
            self._result = self._function()
        except BaseException as error:  # raised by `result`
            self._error = error
        with _lock:
            self._has_ended = True
            _left[self._plug_in].hanging -= self._is_given_up
        self._ended.put(self)


class OpenedPlugIn:
    """An object of a plug-in, and the thread in which all of its calls run, one after the other.

    The first call opens the object; `veil` removes secrets from the texts of errors. After a call that was given up,
    discard this and open another one: `close` then takes effect when the call returns.
    """

    def __init__(
        self,
        plug_in: PlugIn,
        opener: Callable[[], Any],
        *,
        is_limited: bool = True,
        veil: Callable[[str], str] = str,
    ) -> None:
        self.plug_in = plug_in
        self._veil = veil
        self._opener = opener
        self._is_limited = is_limited
        self._object: Any = None
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._has_begun = False
        self.is_given_up = False  # whether a call has not returned in time
        self._started: WeakSet[threading.Thread] = WeakSet()  # threads, by its calls

    def begin(self, use: Callable[[Any], Any], ended: SimpleQueue[Call]) -> Call:
        """Begin a call of `use` with the object.

        Raises PlugInError instead if earlier calls of the type have left too much in this process.
        """
        left = _left.setdefault(self.plug_in, _Left())
        if self._is_limited:
            left.refuse_if_too_much(self.plug_in)
        if not self._has_begun:
            self._has_begun = True
            threading.Thread(target=self._run, name=_THREAD, daemon=True).start()
        call = Call(self.plug_in, lambda: self._call(use), ended, self._veil)
        self._calls.put(call)
        return call

    def call(self, use: Callable[[Any], Any], seconds: float = CALL_SECONDS) -> Any:
        """Return the result of `use` with the object; raises PlugInError, or the EventBridgeError that it raised."""
        ended: SimpleQueue[Call] = SimpleQueue()
        call = self.begin(use, ended)
        try:
            return ended.get(timeout=seconds).result()
        except Empty:
            self.is_given_up = True
            raise call.give_up() from None

    def close(self) -> None:
        """Close the object in its thread, and end the thread; does not wait for it."""
        if self._has_begun:
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
        left = _left[self.plug_in]
        with _lock:
            left.closing[self] = time.monotonic()
        with suppress(BaseException):  # every response that counts came before
            self._close()
        with _lock:
            del left.closing[self]
            left.threads.update(each for each in self._started if each.is_alive())

    def _call(self, use: Callable[[Any], Any]) -> Any:
        before = set(threading.enumerate())
        try:
            if self._object is None:
                self._object = self._opener()
            return use(self._object)
        finally:
            self._started.update(each for each in threading.enumerate() if each not in before and not _is_ours(each))

    def _close(self) -> None:
        close = getattr(self._object, "close", None)
        if close is not None:
            close()


def call(
    plug_in: PlugIn, function: Callable[[], Any], seconds: float = CALL_SECONDS, *, is_limited: bool = True
) -> Any:
    """Return the result of a function of a plug-in; raises PlugInError, or the EventBridgeError that it raised.

    A call that is not `is_limited`, such as an import, is made whatever earlier calls have left.
    """
    opened = OpenedPlugIn(plug_in, lambda: [function()], is_limited=is_limited)  # a list, so that nothing closes it
    try:
        return opened.call(lambda result: result[0], seconds)
    finally:
        opened.close()


def is_in_plug_in() -> bool:
    """Return whether this thread is one in which a plug-in is called."""
    return threading.current_thread().name == _THREAD


def _is_ours(thread: threading.Thread) -> bool:
    """Return whether EventBridge started a thread, at the time of a call, and not the call."""
    target = getattr(thread, "_target", None)
    return thread.name == _THREAD or str(getattr(target, "__module__", "")).startswith("eventbridge.")


def kind_of(value: object) -> str:
    """Return the type of what a plug-in returned, as messages show it."""
    return "None" if value is None else f"an object of the type {type(value).__name__}"
