"""Servers that hang up, say half, say nothing or speak another protocol: an error in time, and the next call is new."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.errors import (
    Malformed,
    NoRoute,
    Refused,
    RemotingError,
    TimedOut,
    Unreachable,
)
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings

Say = Callable[[socket.socket, int], None]


@contextmanager
def server(*says: Say) -> Iterator[str]:
    """Run a server that treats each connection's first request in its own way, the last way for all that follow."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=_serve, args=(listener, says), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _serve(listener: socket.socket, says: tuple[Say, ...]) -> None:
    number = 0
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            say = says[min(number, len(says) - 1)]
            number += 1
            Thread(target=_response, args=(client, say), daemon=True).start()


def _response(client: socket.socket, say: Say) -> None:
    with client, suppress(OSError):
        while head := client.recv(8, socket.MSG_WAITALL):
            length, size = struct.unpack(">II", head)
            rest = client.recv(length - 4, socket.MSG_WAITALL)
            say(client, json.loads(rest[:size])["opaque"])


def frame(opaque: int, body: bytes = b"", code: int = 0) -> bytes:
    header = json.dumps({"code": code, "flag": 1, "opaque": opaque, "remark": "so it is", "extFields": {}}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def route(broker: str) -> bytes:
    """Return the route of a topic with one queue on a broker."""
    queue = {"brokerName": "a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    return json.dumps(
        {"queueDatas": [queue], "brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": broker}}]}
    ).encode()


def hang_up(client: socket.socket, opaque: int) -> None:
    client.shutdown(socket.SHUT_RDWR)


def say_half(client: socket.socket, opaque: int) -> None:
    client.sendall(frame(opaque, b"x" * 100)[:60])
    client.shutdown(socket.SHUT_RDWR)


def say_nothing(client: socket.socket, opaque: int) -> None:
    pass


def say_half_and_no_more(client: socket.socket, opaque: int) -> None:
    client.sendall(frame(opaque)[:20])


def speak_http(client: socket.socket, opaque: int) -> None:
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def respond_to_another_request(client: socket.socket, opaque: int) -> None:
    client.sendall(frame(opaque + 1_000, route("127.0.0.1:1")))


def say(body: bytes, code: int = 0) -> Say:
    return lambda client, opaque: client.sendall(frame(opaque, body, code))


@contextmanager
def asking(*servers: str) -> Iterator[Client]:
    client = Client(ClientSettings(servers, timeout_seconds=0.3))
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (hang_up, Unreachable),
        (say_half, Unreachable),
        (say_nothing, TimedOut),
        (say_half_and_no_more, TimedOut),
        (respond_to_another_request, TimedOut),
        (speak_http, Malformed),
        (say(b"no JSON"), Malformed),
        (say(b"[]"), Malformed),
        (say(b"{}"), Malformed),
        (say(b"", 17), Refused),
    ],
)
def test_whatever_is_said_is_an_error_in_time(how: Say, error: type[RemotingError]) -> None:
    """Which names the server."""
    begun = time.monotonic()
    with server(how) as address, asking(address) as client, pytest.raises(error, match=address):
        client.queues("flights")

    assert time.monotonic() - begun < 5


def test_the_call_after_a_broken_one_is_repeated() -> None:
    """Nothing of the connection that broke is left."""
    with server(say_half, say(route("127.0.0.1:1"))) as address, asking(address) as client:
        with pytest.raises(Unreachable):
            client.queues("flights")
        assert [queue.number for queue in client.queues("flights")] == [0]


def test_the_next_name_server_is_asked() -> None:
    """Where the first says nothing, and hangs up, and is not there."""
    with (
        server(hang_up) as first,
        server(say(route("127.0.0.1:1"))) as second,
        asking("127.0.0.1:1", first, second) as client,
    ):
        assert len(client.queues("flights")) == 1


def test_a_broker_that_is_no_master_is_none() -> None:
    """A route that has only replicas leads nowhere, and says so."""
    found = json.loads(route("127.0.0.1:1"))
    found["brokerDatas"][0]["brokerAddrs"] = {"1": "127.0.0.1:1"}
    with (
        server(say(json.dumps(found).encode())) as address,
        asking(address) as client,
        pytest.raises(NoRoute, match="'flights'"),
    ):
        client.greet("flights")


@pytest.mark.parametrize(("perm", "to_write", "said"), [(4, True, "written to"), (2, False, "read")])
def test_a_topic_without_such_queues_is_reported(perm: int, to_write: bool, said: str) -> None:
    """Operators close a topic for writers before they take it away."""
    found = json.loads(route("127.0.0.1:1"))
    found["queueDatas"][0]["perm"] = perm
    with (
        server(say(json.dumps(found).encode())) as address,
        asking(address) as client,
        pytest.raises(NoRoute, match=f"no queue of the topic 'flights' can be {said} now"),
    ):
        client.queues("flights", to_write=to_write)


def test_a_broker_that_says_half_of_a_message_is_reported() -> None:
    """A frame may be whole and what is in it not."""

    def half(client: socket.socket, opaque: int) -> None:
        header = {"code": 0, "flag": 1, "opaque": opaque, "extFields": {"nextBeginOffset": "1"}}
        text = json.dumps(header).encode()
        client.sendall(struct.pack(">II", 4 + len(text) + 30, len(text)) + text + b"\0\0\1\0" + b"x" * 26)

    with server(half) as broker, server(say(route(broker))) as names, asking(names) as client:
        (queue,) = client.queues("flights")
        with pytest.raises(Malformed):
            list(client.read(queue, 0, 1))


def test_a_name_server_that_hangs_is_waited_for_once() -> None:
    """The one that responded is asked first from then on."""
    with server(say_nothing) as hanging, server(say(route("127.0.0.1:1"))) as good, asking(hanging, good) as client:
        client.queues("flights")
        begun = time.monotonic()
        for _ in range(10):
            client.queues("flights")

    assert time.monotonic() - begun < 0.3


def ended(client: socket.socket, opaque: int) -> None:
    """Respond that the queue ends at 7."""
    header = json.dumps({"code": 0, "flag": 1, "opaque": opaque, "extFields": {"offset": "7"}}).encode()
    client.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)


def test_a_broker_that_hangs_does_not_keep_the_others_from_being_read() -> None:
    """Its timeout is waited for once; then it is away for a while, and its queues are not among the ends."""
    with server(say_nothing) as hanging, server(ended) as good:
        queue = {"perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
        brokers = {"a": hanging, "b": good}
        found = {
            "queueDatas": [queue | {"brokerName": name} for name in brokers],
            "brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": at}} for name, at in brokers.items()],
        }
        with server(say(json.dumps(found).encode())) as names, asking(names) as client:
            queues = client.queues("flights")
            assert client.ends(queues) == {queues[1]: 7}
            begun = time.monotonic()
            for _ in range(10):
                assert client.ends(queues) == {queues[1]: 7}
            assert time.monotonic() - begun < 0.3
            assert [client.is_away(name) for name in brokers] == [True, False]
            with pytest.raises(TimedOut):
                client.ends(queues[:1])


def pulled_responses(*said: tuple[int, int, bytes]) -> Say:
    """Respond to pulls one after the other by code, next offset and body; the last one for all that follow."""
    left = list(said)

    def response(client: socket.socket, opaque: int) -> None:
        code, next_offset, body = left.pop(0) if len(left) > 1 else left[0]
        header = {"code": code, "flag": 1, "opaque": opaque, "extFields": {"nextBeginOffset": str(next_offset)}}
        text = json.dumps(header).encode()
        client.sendall(struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body)

    return response


def a_message(offset: int) -> bytes:
    """Return a message as brokers store it."""
    fixed = struct.pack(">IIIIIQQIQ8xQ8xIQI", 91 + 5, 0xDAA320A7, 0, 0, 0, offset, 0, 0, 0, 0, 0, 0, 1)
    body = fixed + b"x" + b"\x01t" + b"\0\0"
    return struct.pack(">I", len(body)) + body[4:]


def test_a_hole_is_believed_once_it_is_said_several_times() -> None:
    """A broker whose index is not built yet names an offset far behind: the requested messages are found."""
    responses = pulled_responses((19, 300_000, b""), (19, 300_000, b""), (0, 1, a_message(0)))
    with server(responses) as broker, server(say(route(broker))) as names, asking(names) as client:
        (queue,) = client.queues("flights")
        assert [message.offset for part in client.read(queue, 0, 1) for message in part] == [0]
    with (
        server(pulled_responses((19, 300_000, b""))) as broker,
        server(say(route(broker))) as names,
        asking(names) as client,
    ):
        (queue,) = client.queues("flights")
        assert list(client.read(queue, 0, 100)) == []
