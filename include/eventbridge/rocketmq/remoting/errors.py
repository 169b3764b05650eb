"""What a call may meet: nobody responds, a response that refuses, bytes that are no response."""

from __future__ import annotations

from typing import Final

#: Names of the codes that a person is told, as RocketMQ's own documentation has them.
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
    """No connection, or one that broke: whether the call was carried out is not known."""

    def __init__(self, address: str, why: str) -> None:
        self.address = address
        self.why = why
        super().__init__(f"{address}: {why}")


class TimedOut(Unreachable):
    """No response came in time."""


class HostUnknown(Unreachable):
    """No address is known by the name of the host."""


class TlsFailed(Unreachable):
    """TLS could not be agreed upon, or the server's certificate is not trusted."""


class Refused(RemotingError):
    """The server responded that it does not do it; `code` is RocketMQ's, `remark` its words."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        self.address = address
        self.code = code
        self.remark = remark
        super().__init__(f"{address}: {remark or 'refused'} ({name_of(code)})")


class NoRoute(RemotingError):
    """No broker that can be reached has the queue; its topic may have been changed."""


class Malformed(RemotingError):
    """What came is neither a frame nor a message of the protocol."""


def name_of(code: int) -> str:
    """Return what RocketMQ calls the code of a response."""
    return _NAMES.get(code, f"code {code}")
