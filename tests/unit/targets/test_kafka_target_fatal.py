"""A Kafka producer that is lost responses all that it had in flight, and another takes its place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import KafkaError

from eventbridge.clients.kafka.client import ClientErrors
from eventbridge.targets.kafka.target import KafkaTarget
from eventbridge.targets.protocol import Request

START = datetime(2026, 3, 1, tzinfo=UTC)

#: No server listens there: requests stay in flight.
_SETTINGS = {"bootstrap.servers": "127.0.0.1:1"}

_OF_CODE = KafkaError(KafkaError._FATAL)
_MARKED = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost its place", fatal=True)


class TickingClock:
    """A clock that moves a tenth of a second at each look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=0.1)
        return self.now


@pytest.mark.parametrize("error", [_OF_CODE, _MARKED], ids=["by its code", "by its mark"])
def test_a_lost_producer_fails_all_that_is_in_flight(error: KafkaError) -> None:
    """Else the others wait for a failed producer until the push has to stop."""
    target = KafkaTarget(_SETTINGS, "orders", max_in_flight=3, clock=TickingClock())
    target._open()
    first = target._producer
    target._ended.append((1, error))
    requests = [Request(number, f"id-{number}", b"{}", "application/json") for number in range(3)]
    responses = dict(target.deliver(requests, START + timedelta(seconds=20)))

    assert {index: response.error_class for index, response in responses.items()} == dict.fromkeys(
        range(3), "KafkaError"
    )
    assert first is not None
    assert target._producer is None
    assert target._open() is not first
    target.close()


@pytest.mark.parametrize("error", [_OF_CODE, _MARKED], ids=["by its code", "by its mark"])
def test_no_waiting_fixes_a_fatal_error(error: KafkaError) -> None:
    """A client that met one says so instead of a timeout."""
    trouble = ClientErrors()
    trouble(error)

    assert trouble.fatal is error
