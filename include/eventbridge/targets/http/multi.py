"""Runs libcurl transfers concurrently; the engine adds them and removes them when they have ended."""

from __future__ import annotations

import math
import os
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Protocol

import pycurl

from eventbridge.targets.http.endpoint import sockets_opened

_EVENTS = {pycurl.POLL_IN: select.EPOLLIN, pycurl.POLL_OUT: select.EPOLLOUT}
_EVENTS[pycurl.POLL_INOUT] = select.EPOLLIN | select.EPOLLOUT
_EVENTS[pycurl.POLL_NONE] = 0
#: Stands for the watch of a descriptor that may belong to another socket by now.
_UNSURE = (-1, -1)
#: The maximum number of times that the sockets are read again before an overdue transfer is aborted, because a response
#: of 1 MiB arrives in parts, and so do thousands of small responses.
_MAX_LAST_READS = 16
#: The maximum normal time between two polls of the sockets, in seconds; after a longer one, this process was stalled.
_STALL_SECONDS = 0.1


class HasFileno(Protocol):
    """An object with a file descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


class Multi:
    """A libcurl multi handle and the epoll that wakes it; connections are kept and reused.

    libcurl's own `select` is cheaper (17 us a request instead of 22) but supports no descriptor above 1023, and a push
    task with many targets has more. This class handles timeouts itself, because libcurl checks its clock before its
    sockets: after a stall of this thread, a response that arrived in time would be lost. Stall time does not count
    towards a timeout, because the target could not have received or answered the request during it.
    """

    def __init__(self, max_connections: int) -> None:
        self._multi = pycurl.CurlMulti()
        self._epoll = select.epoll()
        self._closing = threading.Lock()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._other_fd: HasFileno | None = None
        self._watched_fd = -1  # a duplicate of the descriptor, so that its number is not reused
        self.fd_ready = False  # whether the watched descriptor was readable
        self._epoll.register(self._wakeup, select.EPOLLIN)
        self._watched: dict[int, tuple[int, int]] = {}  # watched events, and the last socket opened before
        self._resting: set[int] = set()  # sockets that libcurl currently does not use
        #: Local ports of idle connections that their servers closed; libcurl checks for that at most once a second.
        self.closed_ports: set[int] = set()
        self.stalled_seconds = 0.0  # total stall time
        self._polled_at = time.monotonic()
        self._timer_at = math.inf
        self._fresh: dict[pycurl.Curl, float] = {}  # not started yet, with their timeouts in seconds
        self._running: dict[float, dict[pycurl.Curl, float]] = {}  # by timeout: when each is due, in order
        self._timeouts_of: dict[pycurl.Curl, dict[pycurl.Curl, float]] = {}
        self._next_timeout_at = math.inf  # no transfer is due before this time
        self._aborted: set[pycurl.Curl] = set()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, max_connections)

    def start(self, curl: pycurl.Curl, seconds: float) -> None:
        """Start a transfer with a timeout; it is sent by the next call of `wait_for_ended`.

        The caller has disabled the handle's own timeout, except for connecting.
        """
        self._note_stall()
        self._multi.add_handle(curl)
        self._fresh[curl] = seconds

    def wait_for_ended(self, timeout_seconds: float) -> list[tuple[pycurl.Curl, int, str]]:
        """Run all transfers, waiting at most `timeout_seconds` for activity, and return those that ended.

        Each has libcurl's error number (0 if a response arrived) and message. The caller must remove them.
        """
        over_at = self._next_timeout_at + self.stalled_seconds
        drove = self._drive(max(0.0, min(timeout_seconds, min(self._timer_at, over_at) - time.monotonic())))
        if self._next_timeout_at > self._active_time():
            return self._collect_ended() if drove else []
        for _ in range(_MAX_LAST_READS):
            if not self._drive(0.0):
                break
        return self._collect_ended() + self._overdue()

    def _drive(self, wait: float) -> bool:
        """Serve sockets and timers, waiting at most `wait` seconds, and return whether libcurl had something to do."""
        drove = False
        self._note_stall()
        found = self._epoll.poll(wait)
        self._note_stall(wait)
        for descriptor, events in found:
            if descriptor == self._wakeup:
                os.eventfd_read(self._wakeup)
            elif descriptor == self._watched_fd:
                self.fd_ready = True
            elif descriptor in self._resting:
                self._check_idle(descriptor)
            else:
                self._multi.socket_action(descriptor, _select_bits(events))
                drove = True
        if self._timer_at <= time.monotonic():
            self._timer_at = math.inf
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            drove = True
        if drove and self._fresh:
            self._start_timeouts()
        return drove

    def _start_timeouts(self) -> None:
        """Start the timeouts of new transfers, which libcurl began to send with the action just taken."""
        now = self._active_time()
        for curl, seconds in self._fresh.items():
            self._timeouts_of[curl] = among = self._running.setdefault(seconds, {})
            among[curl] = now + seconds
            self._next_timeout_at = min(self._next_timeout_at, now + seconds)
        self._fresh.clear()

    def _overdue(self) -> list[tuple[pycurl.Curl, int, str]]:
        """Abort overdue transfers, and return them."""
        now, found = self._active_time(), []
        for seconds, among in list(self._running.items()):
            while among and among[curl := next(iter(among))] <= now:
                took = now - among[curl] + seconds
                self.remove(curl)
                self._aborted.add(curl)
                came = int(curl.getinfo(pycurl.SIZE_DOWNLOAD_T))
                message = f"Operation timed out after {took * 1000:.0f} milliseconds with {came} bytes received"
                found.append((curl, pycurl.E_OPERATION_TIMEDOUT, message))
            if not among:
                del self._running[seconds]
        self._next_timeout_at = min((next(iter(among.values())) for among in self._running.values()), default=math.inf)
        return found

    def _note_stall(self, expected: float = 0.0) -> None:
        """Add the time since the last poll, beyond the expected seconds, to the stall time if it is too long."""
        now = time.monotonic()
        if (stall := now - self._polled_at - expected) > _STALL_SECONDS:
            self.stalled_seconds += stall
        self._polled_at = now

    def _active_time(self) -> float:
        """Return a clock that stops while this process is stalled."""
        return time.monotonic() - self.stalled_seconds

    def wake(self) -> None:
        """Make `wait_for_ended` return immediately; any thread may call this."""
        with self._closing:
            if not self._epoll.closed:
                os.eventfd_write(self._wakeup, 1)

    def watch_fd(self, other: HasFileno) -> None:
        """Watch another descriptor until it becomes readable; `wait_for_ended` then returns, and `fd_ready` is true."""
        self.fd_ready = False
        if other is self._other_fd:
            self._epoll.modify(self._watched_fd, select.EPOLLIN | select.EPOLLONESHOT)
            return
        self._stop_watching()
        self._other_fd, self._watched_fd = other, os.dup(other.fileno())
        self._epoll.register(self._watched_fd, select.EPOLLIN | select.EPOLLONESHOT)

    def _stop_watching(self) -> None:
        if self._other_fd is not None:
            os.close(self._watched_fd)
        self._other_fd, self._watched_fd = None, -1

    def remove(self, curl: pycurl.Curl) -> None:
        """Remove a transfer; an unfinished one is aborted and its connection closed."""
        if curl in self._aborted:
            self._aborted.remove(curl)
            return
        self._drop_timeout(curl)
        self._multi.remove_handle(curl)

    def _drop_timeout(self, curl: pycurl.Curl) -> None:
        self._fresh.pop(curl, None)
        if (among := self._timeouts_of.pop(curl, None)) is not None:
            among.pop(curl)

    def close(self) -> None:
        """Close all connections; transfers must have been removed."""
        self._multi.close()
        with self._closing:
            self._stop_watching()
            self._epoll.close()
            os.close(self._wakeup)

    def _collect_ended(self) -> list[tuple[pycurl.Curl, int, str]]:
        ended: list[tuple[pycurl.Curl, int, str]] = []
        queued = 1
        while queued:
            queued, good, bad = self._multi.info_read()
            ended += [(curl, 0, "") for curl in good]
            ended += bad
            if bad:  # the resolver's socket is closed, and its number may be reused
                self._watched = dict.fromkeys(self._watched, _UNSURE)
        for curl, _, _ in ended:
            self._drop_timeout(curl)
        return ended

    def _on_socket(self, events: int, descriptor: int, _multi: object, _data: object) -> None:
        if events == pycurl.POLL_REMOVE:
            # It stays watched, because the next request usually uses the same connection, and unwatching costs a system
            # call. An event that arrives meanwhile goes to `_check_idle`.
            self._resting.add(descriptor)
            return
        self._resting.discard(descriptor)
        wanted = (
            _EVENTS[events],
            sockets_opened(),
        )  # after a new socket was opened, the number may belong to another one
        known = self._watched.get(descriptor)
        if known == wanted:
            return
        self._watched[descriptor] = wanted
        if known is not None:
            with suppress(FileNotFoundError):  # another socket with this number was closed and removed from epoll
                self._epoll.modify(descriptor, wanted[0])
                return
        self._epoll.register(descriptor, wanted[0])

    def _check_idle(self, descriptor: int) -> None:
        """Record an idle connection as closed if its server closed it; otherwise keep watching it."""
        try:
            port = _find_closed_port(descriptor)
            if port is None:  # such as a TLS session ticket, which libcurl reads with the next response
                self._watched[descriptor] = _UNSURE
                self._epoll.modify(descriptor, select.EPOLLRDHUP)
                return
            self.closed_ports.add(port)
        except OSError:  # libcurl has closed it
            pass
        self._resting.discard(descriptor)
        self._watched.pop(descriptor, None)
        with suppress(OSError):
            self._epoll.unregister(descriptor)

    def _on_timer(self, milliseconds: int) -> None:
        self._timer_at = math.inf if milliseconds < 0 else time.monotonic() + milliseconds / 1000


def _find_closed_port(descriptor: int) -> int | None:
    """Return the local port of a connection that its peer closed, or None if it is open."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    if not poll.poll(0):
        return None
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        return int(duplicate.getsockname()[1])


def _select_bits(events: int) -> int:
    bits = 0
    if events & select.EPOLLIN:
        bits |= pycurl.CSELECT_IN
    if events & select.EPOLLOUT:
        bits |= pycurl.CSELECT_OUT
    if events & ~(select.EPOLLIN | select.EPOLLOUT):
        bits |= pycurl.CSELECT_ERR
    return bits
