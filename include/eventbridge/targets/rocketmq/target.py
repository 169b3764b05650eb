"""The RocketMQ target: sends each delivery as a message, and waits for its broker's acknowledgement."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import datetime
from typing import Final

from eventbridge.clients.rocketmq.bus_errors import as_bus_errors
from eventbridge.clients.rocketmq.remoting.errors import RemotingError
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings
from eventbridge.errors import BusError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.targets.protocol import Request
from eventbridge.targets.rocketmq.lines import SendConnections
from eventbridge.targets.rocketmq.messages import message_of
from eventbridge.targets.rocketmq.responses import error_class

_WAIT_SECONDS: Final = 0.05


class RocketmqTarget:
    """Sends to one topic, with one tag or none, at most `max_in_flight` messages at a time.

    A message's key is its delivery id. An ordered delivery is sent to the queue of its order key; the caller has one
    message per order key in flight. `settings` hold the timeout of a delivery.
    """

    flush_every = 1
    more_of_response = 0

    def __init__(
        self,
        settings: ClientSettings,
        topic_and_tag: tuple[str, str],
        *,
        max_in_flight: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._servers = ",".join(settings.name_servers)
        self._topic, self._tag = topic_and_tag
        self._lines = SendConnections(settings, self._topic)
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._flying: dict[int, datetime] = {}  # send times, by index

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Send every request as `protocol.Target` says; a response is the broker's acknowledgement of that message."""
        waiting = iter(requests)
        try:
            more = True
            while more or self._flying:
                if more and len(self._flying) < self._max_in_flight:
                    more = yield from self._fill(waiting, until)
                if self._flying:
                    yield from self._responses()
                if self._clock() >= until:
                    break
            yield from self._interrupted()
        finally:
            if self._flying:
                self._drop()

    def flush(self) -> None:
        """Return at once: an acknowledged message is stored, as durably as the broker's settings say."""

    def check(self) -> str | None:
        """Return why the topic cannot be written to: name servers, brokers, login, topic."""
        try:
            with as_bus_errors(self._servers, f"cannot look up the topic {self._topic!r}"):
                self._lines.client.greet(self._topic)
        except BusError as error:
            return str(error)
        return None

    def close(self) -> None:
        """Close the connections to name servers and brokers."""
        self._drop()
        self._lines.client.close()

    def _fill(self, waiting: Iterator[Request], until: datetime) -> Generator[tuple[int, Response], None, bool]:
        """Send while there is capacity and time; return whether there may be more to send."""
        while len(self._flying) < self._max_in_flight:
            if self._clock() >= until:
                return False
            request = next(waiting, None)
            if request is None:
                return False
            reach("target.send")
            self._flying[request.index] = self._clock()
            try:
                self._lines.send(request.index, message_of(request, self._tag), request.order_key)
            except RemotingError as error:
                yield self._response_to(request.index, error)
        return True

    def _responses(self) -> Iterator[tuple[int, Response]]:
        for index, error in self._lines.ended(_WAIT_SECONDS):
            yield self._response_to(index, error)

    def _response_to(self, index: int, error: RemotingError | None) -> tuple[int, Response]:
        started_at = self._flying.pop(index)
        reach("target.responded")
        if error is None:
            return index, Response(True, started_at, self._since(started_at))
        said = " ".join(str(error).split())[:300]
        return index, Response(False, started_at, self._since(started_at), error_class=error_class(error), error=said)

    def _interrupted(self) -> Iterator[tuple[int, Response]]:
        """Abandon the messages in flight, and yield their responses."""
        given_up = dict(self._flying)
        if given_up:
            self._drop()
        for index, started_at in given_up.items():
            duration_ms = self._since(started_at)
            yield (
                index,
                Response(False, started_at, duration_ms, error_class="Interrupted", error="the push had to stop"),
            )

    def _since(self, started_at: datetime) -> float:
        return max(0.0, (self._clock() - started_at).total_seconds() * 1_000)

    def _drop(self) -> None:
        self._flying.clear()
        self._lines.drop()
