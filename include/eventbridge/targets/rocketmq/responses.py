"""What RocketMQ says to a message, as a response: what is permanent, what may be better the next time."""

from __future__ import annotations

from typing import Final

from eventbridge.rocketmq.remoting.errors import (
    HostUnknown,
    NoRoute,
    Refused,
    RemotingError,
    TimedOut,
    TlsFailed,
    Unreachable,
)

#: By code: what the response's `error_class` is. `decision.response_to_outcome` knows which of them are permanent.
_CLASSES: Final = {
    2: "Busy",
    13: "MessageTooLarge",
    16: "NotAuthorized",
    17: "TopicUnknown",
}


def error_class(error: RemotingError) -> str:
    """Return what happened instead of an acknowledgement, in one of few words."""
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
