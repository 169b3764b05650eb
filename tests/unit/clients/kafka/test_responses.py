"""What librdkafka gives for a response that it did not get."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo

from eventbridge.clients.kafka.client import _raise_for_transient


def test_an_offset_that_says_nothing_is_no_response() -> None:
    """The response was cut short: taken for the end of a topic it would say that the topic had lost its messages."""
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        _raise_for_transient([ListOffsetsResultInfo(OFFSET_INVALID, -1, -1)], ())
    _raise_for_transient([ListOffsetsResultInfo(-1, -1, -1)], ())  # of a time: no message is as young
