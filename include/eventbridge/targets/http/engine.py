"""Runs the transfers of many http targets, each with a transfer slot, in one event loop over libcurl's multi handle."""

from __future__ import annotations

import math
import resource
from collections import OrderedDict, defaultdict, deque
from typing import Any

import pycurl

from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.exchange import Exchange
from eventbridge.targets.http.multi import HasFileno, Multi

#: The maximum number of concurrent transfers in one process; they may need up to twice as many open files.
_MAX_IN_FLIGHT = 2048
#: Above this share of the maximum, only a target without a transfer in flight may start one, so that hanging targets
#: leave room for others.
_SHARED_PORTION = 0.75


class HttpEngine:
    """Runs up to `max_in_flight` transfers concurrently. Only one thread may use it, except for `wake`.

    If `freely` is not None and that many transfers are in flight, only a target without one in flight may start
    another. Connections and handles are kept for reuse, because creating either costs more than a request.
    """

    def __init__(self, max_in_flight: int, freely: int | None = None) -> None:
        self._most = max_in_flight
        self._freely = max_in_flight if freely is None else freely
        self._multi = Multi(max_in_flight)
        self._slots: dict[pycurl.Curl, TransferSlot] = {}
        self._idle: dict[object, list[Exchange]] = defaultdict(list)
        # slots that wait for room, first those with nothing in flight, then those with transfers in flight
        self._want_one: OrderedDict[TransferSlot, None] = OrderedDict()
        self._want_more: OrderedDict[TransferSlot, None] = OrderedDict()

    def wait(self, seconds: float) -> list[TransferSlot]:
        """Run all transfers, wait at most `seconds` for a change, and return the slots that have one.

        A change is an ended transfer, or room for another one.
        """
        news = self._with_room()
        for curl, error_number, message in self._multi.wait_for_ended(0.0 if news else seconds):
            slot = self._slots[curl]
            if error_number == pycurl.E_ABORTED_BY_CALLBACK and not slot.flying[curl].sent:
                self._connect_again(slot.flying[curl])
                continue
            slot.ended.append((curl, error_number, message))
            news[slot] = None
        return list(news)

    def watch_fd(self, other: HasFileno) -> None:
        """Watch another descriptor until it becomes readable; `wait` then returns, and `fd_ready` is true."""
        self._multi.watch_fd(other)

    @property
    def fd_ready(self) -> bool:
        """Return whether the watched descriptor became readable."""
        return self._multi.fd_ready

    def wake(self) -> None:
        """Make `wait` return immediately; any thread may call this."""
        self._multi.wake()

    def close(self) -> None:
        """Close all connections; no transfer may be in flight."""
        self._multi.close()
        for exchanges in self._idle.values():
            for exchange in exchanges:
                exchange.close()
        self._idle.clear()

    def has_room(self, slot: TransferSlot) -> bool:
        """Return whether a slot may start a transfer; if not, `wait` returns the slot once there is room."""
        in_flight = len(self._slots)
        if in_flight < self._freely or (in_flight < self._most and not slot.flying):
            return True
        (self._want_more if slot.flying else self._want_one)[slot] = None
        return False

    def exchange(self, endpoint: Endpoint) -> Exchange:
        """Return an exchange for an endpoint."""
        idle = self._idle[endpoint.kind]
        if not idle:
            exchange = Exchange(endpoint, self._multi.closed_ports)
            exchange.curl.setopt(pycurl.TIMEOUT_MS, 0)  # `Multi` applies the timeout
            return exchange
        exchange = idle.pop()
        exchange.turn_to(endpoint)
        return exchange

    def keep(self, exchanges: list[Exchange]) -> None:
        """Keep idle exchanges for reuse."""
        for exchange in exchanges:
            self._idle[exchange.endpoint.kind].append(exchange)

    def start(self, slot: TransferSlot, exchange: Exchange) -> None:
        """Start a transfer; it is sent by the next `wait`."""
        self._multi.start(exchange.curl, exchange.endpoint.timeout_seconds)
        exchange.stalled_before = self._multi.stalled_seconds
        self._slots[exchange.curl] = slot

    def _connect_again(self, exchange: Exchange) -> None:
        """Restart an unsent transfer on a new connection, because the target had closed the idle one."""
        self._multi.remove(exchange.curl)
        exchange.connect_again()
        self._multi.start(exchange.curl, exchange.endpoint.timeout_seconds)

    def stalled_ms(self, exchange: Exchange) -> float:
        """Return the number of milliseconds for which this process has stalled since a transfer began."""
        return (self._multi.stalled_seconds - exchange.stalled_before) * 1000

    def remove(self, curl: pycurl.Curl) -> None:
        """Remove a transfer; an unfinished one is aborted and its connection closed."""
        self._multi.remove(curl)
        del self._slots[curl]

    def forget(self, slot: TransferSlot) -> None:
        """Stop reporting room to a transfer slot."""
        self._want_one.pop(slot, None)
        self._want_more.pop(slot, None)

    def _with_room(self) -> dict[TransferSlot, None]:
        found: dict[TransferSlot, None] = {}
        for wanting, limit in ((self._want_one, self._most), (self._want_more, self._freely)):
            while wanting and len(self._slots) + len(found) < limit:
                found[wanting.popitem(last=False)[0]] = None
        return found


class TransferSlot:
    """One target's share of an engine: its transfers in flight, by handle, and its ended transfers.

    `holder` lets the engine's owner recognise the slot.
    """

    __slots__ = ("_engine", "_idle", "ended", "flying", "holder")

    def __init__(self, engine: HttpEngine, holder: Any = None) -> None:
        self._engine = engine
        self.holder = holder
        self.flying: dict[pycurl.Curl, Exchange] = {}
        self.ended: deque[tuple[pycurl.Curl, int, str]] = deque()
        self._idle: list[Exchange] = []

    @property
    def has_room(self) -> bool:
        """Return whether the engine accepts one more transfer of this target."""
        return self._engine.has_room(self)

    def exchange(self, endpoint: Endpoint) -> Exchange:
        """Return an exchange with the target's endpoint."""
        return self._idle.pop() if self._idle else self._engine.exchange(endpoint)

    def start(self, exchange: Exchange) -> None:
        """Start a transfer."""
        self._engine.start(self, exchange)
        self.flying[exchange.curl] = exchange

    def take_out(self, curl: pycurl.Curl) -> Exchange:
        """Remove a transfer, aborting it if unfinished; read its result before it is freed."""
        exchange = self.flying.pop(curl)
        self._engine.remove(curl)
        return exchange

    def stalled_ms(self, exchange: Exchange) -> float:
        """Return the number of milliseconds for which this process has stalled since a transfer began."""
        return self._engine.stalled_ms(exchange)

    def free(self, exchange: Exchange) -> None:
        """Release an exchange's request and response, and keep the exchange for reuse."""
        exchange.forget()
        self._idle.append(exchange)

    def leave(self) -> None:
        """Release everything that is not in flight; called when the target has no more requests for now."""
        self.ended.clear()
        self._engine.forget(self)
        self._engine.keep(self._idle)
        self._idle.clear()


def engine_of_push() -> HttpEngine:
    """Return an engine for all http targets of a push, sized by the process's limit on open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(1, min(_MAX_IN_FLIGHT, files // 2))
    return HttpEngine(most, freely=math.ceil(most * _SHARED_PORTION))
