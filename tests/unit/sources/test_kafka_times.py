"""Times of Kafka messages: brokers keep whatever number a producer sends."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from eventbridge.sources.kafka.reading import _block

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ((TIMESTAMP_CREATE_TIME, 1_700_000_000_000), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ((TIMESTAMP_CREATE_TIME, 1_700_000_000_000_000_000), NO_TIME),
        ((TIMESTAMP_CREATE_TIME, 1_700_000_000_000_000), NO_TIME),
        ((TIMESTAMP_CREATE_TIME, 253_402_300_799_999), NO_TIME),
        ((TIMESTAMP_CREATE_TIME, -(1 << 62)), NO_TIME),
        ((TIMESTAMP_NOT_AVAILABLE, -1), NO_TIME),
    ],
    ids=["milliseconds", "nanoseconds", "microseconds", "the last of datetime", "before the first", "none"],
)
def test_a_time_that_is_no_date_is_no_time(timestamp: tuple[int, int], expected: datetime) -> None:
    """One message with an odd time must not stop all that come behind it."""
    message = Message(topic="orders", partition=0, offset=7, key=None, value=b"{}", headers=None, timestamp=timestamp)
    assert _block([message])["published_at"].to_pylist() == [expected]
