"""The errors of a call: no response, a refusal, or malformed bytes."""

from __future__ import annotations

from typing import Final

#: Names of response codes in messages, as in RocketMQ's documentation.
_NAMES: Final = {
    1: "SYSTEM_ERROR",
    2: "SYSTEM_BUSY",
    3: "REQUEST_CODE_NOT_SUPPORTED",
    10: "FLUSH_DISK_TIMEOUT",
    11: "SLAVE_NOT_AVAILABLE",
    12: "FLUSH_SLAVE_TIMEOUT",
    13: "MESSAGE_ILLEGAL",
    14: "SERVICE_NOT_AVAILABLE",
    16: "NO_PERMISSION",
    17: "TOPIC_NOT_EXIST",
    21: "PULL_OFFSET_MOVED",
    22: "QUERY_NOT_FOUND",
    26: "SUBSCRIPTION_GROUP_NOT_EXIST",
}


class RemotingError(Exception):
    """A call did not succeed."""


class Unreachable(RemotingError):
    """There was no connection, or it broke; whether the call was carried out is unknown."""

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.why = reason
        super().__init__(f"{address}: {reason}")


class TimedOut(Unreachable):
    """No response arrived in time."""


class HostUnknown(Unreachable):
    """The host name has no address."""


class TlsFailed(Unreachable):
    """The TLS handshake failed, or the server's certificate is not trusted."""


class Refused(RemotingError):
    """The server refused the request; `code` and `remark` are RocketMQ's."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        self.address = address
        self.code = code
        self.remark = remark
        super().__init__(f"{address}: {remark or 'refused'} ({name_of(code)})")


class NoRoute(RemotingError):
    """No known broker has the topic or queue, or no queue allows the operation."""


class Malformed(RemotingError):
    """The bytes are neither a frame nor a message of the protocol."""


def name_of(code: int) -> str:
    """Return RocketMQ's name of a response code."""
    return _NAMES.get(code, f"code {code}")
