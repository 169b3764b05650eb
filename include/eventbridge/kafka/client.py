"""Asks a Kafka cluster and waits for its response; a response that does not come is told by what the client met."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from eventbridge.errors import BusError

Key = TypeVar("Key")

#: How long a cluster may take to respond to one question.
RESPONSE_SECONDS: Final = 15.0

#: How often a client that waits is asked whether it met an error.
_LOOK_SECONDS: Final = 0.05

#: What is not better a moment later: waiting for the response would only hide it.
_FINAL: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._FATAL,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)

#: What is over in a moment: leaders and coordinators move, brokers are started again.
_PASSING: Final = frozenset(
    {
        KafkaError._NOENT,  # no leader was found, as the broker that was asked did not respond
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)

_UNHEARD: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION})

#: What says only that there was no response, not why.
_VAGUE: Final = (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._NOENT)

#: Every client: no words to stderr, and a connection that is not used says nothing.
QUIET: Final[Mapping[str, Any]] = {"log_level": 0, "log.connection.close": False}

_REMEDIES: Final = {
    KafkaError._ALL_BROKERS_DOWN: "Start the brokers, or correct the connection's host",
    KafkaError._AUTHENTICATION: "Correct login, password and sasl.mechanism of the connection",
    KafkaError._RESOLVE: "Correct the connection's host",
    KafkaError._SSL: "Renew the broker's certificate if it has ended, or correct ssl.ca.location and other files",
    KafkaError._TIMED_OUT: "Start the brokers, or correct the connection's host",
    KafkaError._TRANSPORT: "Start the brokers, or correct the connection's host",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Let the connection's login read and commit for the group",
    KafkaError.SASL_AUTHENTICATION_FAILED: "Correct login and password of the connection",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Let the connection's login describe, read and write the topic",
    KafkaError.UNKNOWN_MEMBER_ID: "Another program consumes as a member of this group: give the runner another name",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Make the topic, or correct topics in the rule file",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "Correct sasl.mechanism of the connection",
}


class ClientErrors:
    """What a client met beside its responses: the callback `error_cb` of its settings."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self._final: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take note of an error; one that ends all hope stays."""
        self._last = error
        if error.code() in _FINAL or error.fatal():
            self._final = self._final or error

    @property
    def final(self) -> KafkaError | None:
        """The error that no waiting mends, if there was one."""
        return self._final

    def instead_of(self, error: KafkaError) -> KafkaError:
        """Return what to tell in place of an error: of a time-out, what came before it."""
        found = self._final or self._last
        return found if found is not None and error.code() in _VAGUE else error


def bus_error(servers: str, doing: str, error: KafkaError) -> BusError:
    """Return the error to raise for what a client met while it was `doing` something, with the remedy."""
    remedy = _REMEDIES.get(error.code())
    said = error.str().strip().rstrip(".")
    return BusError(f"Kafka at {servers}: {doing}: {said} ({error.name()})." + (f" {remedy}." if remedy else ""))


class BrokerQueries:
    """Asks the brokers by one client, which threads may share."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.servers = str(settings["bootstrap.servers"])
        self.trouble = ClientErrors()
        try:
            self.client = AdminClient({**settings, **QUIET, "error_cb": self.trouble})
        except KafkaException as error:
            raise bus_error(self.servers, "cannot open a client", error.args[0]) from None

    def responses(
        self, ask: Callable[[AdminClient], Mapping[Key, Future[Any]]], doing: str, *, of_known: bool = False
    ) -> dict[Key, Any]:
        """Return the response to each question that `ask` asks; raises BusError unless all are there in time.

        They are asked again while a partition or a group is between two brokers, and, if they are `of_known`
        partitions, while one has not heard of them yet.
        """
        passing = _PASSING | _UNHEARD if of_known else _PASSING
        end = time.monotonic() + RESPONSE_SECONDS
        while True:
            asked = ask(self.client)
            self._wait(asked, doing, end)
            try:
                found = {key: future.result() for key, future in asked.items()}
                _refuse_passing(found.values(), passing)
                return found
            except KafkaException as error:
                self.client.poll(_LOOK_SECONDS)  # not at once again; and its errors come before what is told
                failed = error.args[0]
                if failed.code() not in passing or self.trouble.final is not None or time.monotonic() > end:
                    raise bus_error(self.servers, doing, self.trouble.instead_of(failed)) from None
                self._look_again()

    def _look_again(self) -> None:
        """Learn again who leads what: of itself the client asks the leader that it knows."""
        with suppress(KafkaException):
            self.client.list_topics(timeout=RESPONSE_SECONDS)

    def _wait(self, asked: Mapping[Any, Future[Any]], doing: str, end: float) -> None:
        while wait(asked.values(), _LOOK_SECONDS).not_done:
            self.client.poll(0)
            if self.trouble.final is not None:
                raise bus_error(self.servers, doing, self.trouble.final)
            if time.monotonic() > end:
                error = KafkaError(KafkaError._TIMED_OUT)
                raise bus_error(self.servers, doing, self.trouble.instead_of(error))

    def failed(self, doing: str, error: KafkaError) -> BusError:
        """Return the error to raise for what failed in a part of a response."""
        return bus_error(self.servers, doing, error)


def _refuse_passing(responses: Iterable[Any], passing: Collection[int]) -> None:
    """Raise KafkaException for what failed in a part of a response and passes by itself.

    So does a group that is being loaded, and a broker whose response was cut short: librdkafka then gives for an offset
    one that says nothing, as if all were well.
    """
    for response in responses:
        if getattr(response, "offset", None) == OFFSET_INVALID:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        for part in getattr(response, "topic_partitions", None) or ():
            if part.error is not None and part.error.code() in passing:
                raise KafkaException(part.error)
