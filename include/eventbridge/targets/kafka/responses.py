"""Converts Kafka's errors for a message to an error class, permanent or transient."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

#: The response's `error_class` by code; `decision.response_to_outcome` decides which of them are permanent.
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
