"""Converts the errors of a RocketMQ client to BusError with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eventbridge.clients.rocketmq.remoting.errors import HostUnknown, Refused, RemotingError, TlsFailed, Unreachable
from eventbridge.errors import BusError

_START: Final = "Start the name servers and brokers, or correct the connection's host"
_REMEDIES: Final = {
    13: "Send smaller messages, or raise the broker's maxMessageSize",
    16: "Correct login and password, or allow its access key to read and write the topic and its group",
    17: "Create the topic, start its brokers, or correct topics in the rule file",
    26: "Create the consumer group: mqadmin updateSubGroup -n NAME_SERVER -c CLUSTER -g GROUP",
}


@contextmanager
def as_bus_errors(servers: str, doing: str) -> Iterator[None]:
    """Convert RemotingError within the block to BusError with a remedy; `doing` says what failed."""
    try:
        yield
    except RemotingError as error:
        raise bus_error(servers, doing, error) from None


def bus_error(servers: str, doing: str, error: RemotingError) -> BusError:
    """Return the BusError for a client's error; `doing` says what failed, such as `cannot read offsets`."""
    said = " ".join(str(error).split())[:300].rstrip(". ")
    remedy = _remedy(error)
    return BusError(f"RocketMQ at {servers}: {doing}: {said}." + (f" {remedy}." if remedy else ""))


def _remedy(error: RemotingError) -> str:
    match error:
        case Refused():
            return _REMEDIES.get(error.code, "")
        case TlsFailed():
            return "Correct tls and ca_certificate in the connection's extra"
        case HostUnknown():
            return "Correct the connection's host"
        case Unreachable():
            return _START
        case _:
            return ""
