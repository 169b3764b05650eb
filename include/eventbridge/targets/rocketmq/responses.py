"""Converts RocketMQ's errors for a message to an error class, permanent or transient."""

from __future__ import annotations

from typing import Final

from eventbridge.clients.rocketmq.remoting.errors import (
    HostUnknown,
    NoRoute,
    Refused,
    RemotingError,
    TimedOut,
    TlsFailed,
    Unreachable,
)

#: The response's `error_class` by code; `decision.response_to_outcome` decides which of them are permanent.
_CLASSES: Final = {
    2: "Busy",
    13: "MessageTooLarge",
    16: "NotAuthorized",
    17: "TopicUnknown",
}


def error_class(error: RemotingError) -> str:
    """Return the error class of a message without an acknowledgement."""
    match error:
        case Refused():
            return _CLASSES.get(error.code, "RocketmqError")
        case TimedOut():
            return "Timeout"
        case HostUnknown():
            return "HostUnknown"
        case TlsFailed():
            return "TlsError"
        case Unreachable() | NoRoute():
            return "NetworkError"
        case _:
            return "RocketmqError"
