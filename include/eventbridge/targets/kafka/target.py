"""Implements the Kafka target, which publishes each delivery as a message and waits for all in-sync replicas."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection

from eventbridge.clients.kafka.client import QUIET, BrokerQueries, ClientErrors, client_settings
from eventbridge.errors import BusError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.targets.kafka.fields import KafkaFields
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import Request

_SETTINGS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 2,
    "message.max.bytes": 16 << 20,
    "partitioner": "consistent_random",
    "topic.metadata.propagation.max.ms": 500,  # this client creates no topics, so an unknown topic does not exist
}
#: The header with the delivery id, which stays the same at every attempt.
DELIVERY_ID: Final = "eventbridge-delivery-id"

#: Errors that Kafka returns for all messages of a batch even if a single message, or their total size, is the cause.
_BATCH_WIDE_ERRORS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)

#: The maximum time that one call waits for results; it blocks the sending thread.
_WAIT_SECONDS: Final = 0.05
_INTERRUPTED: Final = "the push ended before the response came"


@dataclass(slots=True)
class _MessageInFlight:
    """A message in flight; `alone` if no other message can be the cause of its error."""

    started_at: datetime
    request: Request
    alone: bool


class KafkaTarget:
    """Publishes to one topic, at most `max_in_flight` messages at a time.

    A message's key is its delivery's order key, so that ordered deliveries are in one partition; without one, any
    partition is used. `settings` are librdkafka's, including the timeout of a delivery.
    """

    flush_every = 1
    more_of_response = 0

    def __init__(
        self, settings: Mapping[str, Any], topic: str, *, max_in_flight: int, clock: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._client_errors = ClientErrors()
        self._producer: Producer | None = None
        self._in_flight: dict[int, _MessageInFlight] = {}
        self._to_resend: deque[Request] = (
            deque()
        )  # refused, perhaps because of others in their batch, so each is sent again alone
        self._ended: deque[tuple[int, KafkaError | None]] = deque()

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Publish every request, see `protocol.Target`; a response is Kafka's acknowledgement of that message."""
        waiting = iter(requests)
        try:
            more = True
            while more or self._in_flight or self._to_resend:
                if self._to_resend and not self._in_flight:
                    self._send(self._to_resend.popleft(), alone=True)
                elif not self._to_resend:
                    more = more and self._fill(waiting, until)
                self._wait()
                yield from self._responses()
                if self._clock() >= until:
                    break
            yield from self._interrupted()
        finally:
            if self._in_flight or self._to_resend:
                self._drop()

    def flush(self) -> None:
        """Return immediately, because an acknowledgement means that all in-sync replicas have the message."""

    def check(self) -> str | None:
        """Return why the topic cannot be looked up (brokers, login or topic), or None if it can."""
        settings = {name: value for name, value in self._settings.items() if name != "message.timeout.ms"}
        asking = BrokerQueries(settings)
        named = TopicCollection([self._topic])
        try:
            asking.responses(lambda client: client.describe_topics(named), f"cannot look up the topic {self._topic!r}")
        except BusError as error:
            return str(error)
        return None

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._drop()

    def _fill(self, waiting: Iterator[Request], until: datetime) -> bool:
        """Send while there is capacity and time; return whether there may be more to send."""
        while len(self._in_flight) < self._max_in_flight and not self._to_resend:
            if self._clock() >= until:
                return False
            request = next(waiting, None)
            if request is None:
                return False
            self._send(request)
        return True

    def _send(self, request: Request, *, alone: bool = False) -> None:
        reach("target.send")
        index, ended = request.index, self._ended
        self._in_flight[index] = sent = _MessageInFlight(self._clock(), request, alone)
        try:
            self._open().produce(
                self._topic,
                request.payload,
                None if request.order_key is None else request.order_key.encode("utf-8", "surrogatepass"),
                on_delivery=lambda error, _message: ended.append((index, error)),
                headers=_headers(request),
            )
        except KafkaException as error:
            sent.alone = True  # it failed before it joined a batch, so it would also fail alone
            ended.append((index, error.args[0]))

    def _open(self) -> Producer:
        if self._producer is None:
            self._client_errors = ClientErrors()
            self._producer = Producer({**self._settings, **QUIET, **_SETTINGS, "error_cb": self._client_errors})
        return self._producer

    def _wait(self) -> None:
        """Wait for the result of a message; a fatal error ends all messages in flight."""
        if self._producer is None or not self._in_flight:
            return
        if not self._ended:
            self._producer.poll(_WAIT_SECONDS)
        # an idempotent producer that lost its sequence never recovers
        lost = (error for _, error in self._ended if error is not None and _is_fatal(error))
        final = self._client_errors.fatal or next(lost, None)
        if final is not None:
            known = {index for index, _ in self._ended}
            self._ended += [(index, final) for index in self._in_flight if index not in known]
            self._producer.purge(blocking=False)
            self._producer = None

    def _responses(self) -> Iterator[tuple[int, Response]]:
        while self._ended:
            index, error = self._ended.popleft()
            sent = self._in_flight.pop(index, None)
            if sent is None:
                continue
            if not sent.alone and error is not None and error.code() in _BATCH_WIDE_ERRORS:
                self._to_resend.append(sent.request)
                continue
            reach("target.responded")
            yield index, self._response(sent.started_at, error)

    def _response(self, started_at: datetime, error: KafkaError | None) -> Response:
        duration_ms = max(0.0, (self._clock() - started_at).total_seconds() * 1_000)
        if error is None:
            return Response(True, started_at, duration_ms)
        found = self._client_errors.instead_of(error)
        return Response(
            False, started_at, duration_ms, error_class=error_class(error), error=f"{found.str()} ({found.name()})"
        )

    def _interrupted(self) -> Iterator[tuple[int, Response]]:
        """Abandon the messages in flight and those to be sent again, and yield their responses."""
        given_up = {index: sent.started_at for index, sent in self._in_flight.items()}
        now = self._clock()
        given_up |= {request.index: now for request in self._to_resend}
        self._drop()
        for index, started_at in given_up.items():
            duration_ms = max(0.0, (self._clock() - started_at).total_seconds() * 1_000)
            yield (
                index,
                Response(False, started_at, duration_ms, error_class="Interrupted", error=_INTERRUPTED),
            )

    def _drop(self) -> None:
        """Drop the messages in flight; Kafka may still get them, but no result is reported."""
        self._in_flight.clear()
        self._to_resend.clear()
        self._ended = deque()
        if self._producer is not None:
            self._producer.purge(blocking=False)
            self._producer = None


def _is_fatal(error: KafkaError) -> bool:
    """Return whether an error is fatal for the producer; an error created from its code alone lacks the flag."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


def _headers(request: Request) -> list[tuple[str, bytes]]:
    """Return a message's headers, with CloudEvents attributes as in the Kafka protocol binding and others unchanged."""
    headers = [(DELIVERY_ID, request.delivery_id.encode())]
    if request.content_type:
        headers.append(("content-type", request.content_type.encode()))
    for name, value in request.headers.items():
        if name.lower().startswith("ce-"):
            headers.append((f"ce_{name[3:]}", unquote(value).encode("utf-8", "replace")))  # escaping is for HTTP only
        else:
            headers.append((name, value.encode("utf-8", "replace")))
    return headers


#: The response's `error_class` by code; `policy.response_to_outcome` decides which of them are permanent.
_CLASSES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "MessageTooLarge",
    KafkaError.RECORD_LIST_TOO_LARGE: "MessageTooLarge",
    KafkaError.INVALID_RECORD: "MessageRefused",
    KafkaError._MSG_TIMED_OUT: "Timeout",
    KafkaError._TIMED_OUT: "Timeout",
    KafkaError._TRANSPORT: "NetworkError",
    KafkaError._ALL_BROKERS_DOWN: "NetworkError",
    KafkaError._RESOLVE: "HostUnknown",
    KafkaError._SSL: "TlsError",
    KafkaError._AUTHENTICATION: "NotAuthenticated",
    KafkaError.SASL_AUTHENTICATION_FAILED: "NotAuthenticated",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "NotAuthenticated",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "NotAuthorized",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "NotAuthorized",
    KafkaError._UNKNOWN_TOPIC: "TopicUnknown",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "TopicUnknown",
    KafkaError._PURGE_QUEUE: "Interrupted",
    KafkaError._PURGE_INFLIGHT: "Interrupted",
}


def error_class(error: KafkaError) -> str:
    """Return the error class of a message without an acknowledgement."""
    return _CLASSES.get(error.code(), "KafkaError")


def open_kafka(opening: TargetSetup[KafkaFields]) -> KafkaTarget:
    """Return a Kafka target; reads its connection now, and raises ConnectionUnusable if it cannot be used."""
    target = opening.target
    settings = client_settings(opening.connections(target.connection))
    settings["message.timeout.ms"] = str(round(target.timeout_seconds * 1_000))
    return KafkaTarget(settings, target.topic, max_in_flight=target.max_in_flight, clock=opening.clock)
