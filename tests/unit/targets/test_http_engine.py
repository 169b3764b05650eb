"""The event loop that http targets share: how its room is divided, and what one of them leaves to the next."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing

import pytest
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, later, now

from eventbridge.config.connection import Connection
from eventbridge.targets.http.engine import HttpEngine, TransferSlot
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request
from eventbridge.targets.steps import MultiplexedTarget, Step, is_multiplexed


@pytest.fixture
def engine() -> Iterator[HttpEngine]:
    """An engine for four requests at a time, the last of which is for those that have none."""
    with closing(HttpEngine(4, freely=3)) as made:
        yield made


def target_of(url: str, **fields: object) -> MultiplexedTarget:
    rule = HttpFields.model_validate({"name": "crm", "url": url, "allow_http": True} | fields)
    target = open_target("r", rule, _no_connection, now, LOOPBACK)
    assert is_multiplexed(target)
    return target


def requests(count: int) -> list[Request]:
    return [Request(number, str(uuid.uuid4()), b"{}", "application/json") for number in range(count)]


def responses_of(engine: HttpEngine, steps: Generator[Step, None, None]) -> list[int]:
    """Drive one delivery until it ends, and return the indexes that got a response."""
    found = []
    for step in steps:
        if isinstance(step, tuple):
            found.append(step[0])
        else:
            engine.wait(1.0)
    return found


def test_targets_that_hang_leave_room_for_others(engine: HttpEngine, receiver: Receiver) -> None:
    """One gets three of four requests in flight, another the last one at a time, all get a response."""
    hanging, healthy = TransferSlot(engine), TransferSlot(engine)
    stuck = target_of(receiver.url("/hang/engine")).steps(requests(10), later(), hanging)
    assert next(stuck) is None
    assert len(hanging.flying) == 3

    responded = responses_of(engine, target_of(receiver.url("/healthy/engine")).steps(requests(10), later(), healthy))

    assert sorted(responded) == list(range(10))
    stuck.close()
    assert not hanging.flying


def test_a_slot_without_room_is_notified_when_there_is_room(engine: HttpEngine, receiver: Receiver) -> None:
    """It is among those that have news as soon as another's request ended."""
    first, second, third = TransferSlot(engine), TransferSlot(engine), TransferSlot(engine)
    stuck = target_of(receiver.url("/hang/engine")).steps(requests(10), later(), first)
    other = target_of(receiver.url("/hang/engine")).steps(requests(10), later(), second)
    late = target_of(receiver.url("/healthy/engine")).steps(requests(1), later(), third)
    assert [next(stuck), next(other), next(late)] == [None, None, None]
    assert not third.flying

    other.close()

    assert third in engine.wait(1.0)
    assert responses_of(engine, late) == [0]
    stuck.close()


def test_a_handle_goes_from_target_to_target_without_what_the_first_sent(
    engine: HttpEngine, receiver: Receiver
) -> None:
    """URL, credentials in it included, and headers are each target's own."""
    secret = Connection("crm", "http", receiver.url(""), extra={"api_key": "k3y", "api_key_query": "key"})
    rule = HttpFields(name="crm", url=receiver.url("/healthy/first"), allow_http=True, connection="crm")
    first = open_target("r", rule, lambda _: secret, now, LOOPBACK)
    assert is_multiplexed(first)
    path = f"/healthy/{uuid.uuid4()}"

    responses_of(engine, first.steps(requests(1), later(), TransferSlot(engine)))
    responses_of(engine, target_of(receiver.url(path)).steps(requests(1), later(), TransferSlot(engine)))

    seen = [request for request in receiver.requests() if request["path"] == path]
    assert len(seen) == 1, "and not with the key of the first"
    assert "k3y" not in str(seen)
    assert any("key=k3y" in str(request["path"]) for request in receiver.requests()), "the first had it"


def test_any_thread_may_wake_it_also_when_it_is_closed() -> None:
    """`wait` ends at once; a call that came too late is not an error."""
    engine = HttpEngine(1)
    threading.Timer(0.05, engine.wake).start()
    began = time.monotonic()

    engine.wait(20.0)

    assert time.monotonic() - began < 10
    engine.close()
    engine.wake()


def _no_connection(connection_id: str) -> Connection:
    raise AssertionError(f"unexpected look-up of {connection_id}")


def test_a_socket_with_the_number_of_a_closed_one_is_polled(engine: HttpEngine) -> None:
    """A server that closes each connection after its response gives every request a socket number seen before."""
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(20):
                connection, _address = server.accept()
                with connection:
                    while not connection.recv(65536).endswith(b"{}"):
                        pass
                    connection.sendall(response)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        target = target_of(f"http://127.0.0.1:{server.getsockname()[1]}/close", timeout_seconds=2.0, max_in_flight=1)
        accepted = []
        for step in target.steps(requests(20), later(), TransferSlot(engine)):
            if isinstance(step, tuple):
                accepted.append(step[1].accepted)
            else:
                engine.wait(1.0)

    assert accepted == [True] * 20


def test_a_response_that_came_in_time_counts_however_late_it_is_read(engine: HttpEngine) -> None:
    """The engine's caller stood still for longer than a timeout; only a request without a response times out."""
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    asked, still, responded = threading.Event(), threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            first, _ = server.accept()
            second, _ = server.accept()
            with first, second:
                for connection in (first, second):
                    while not connection.recv(65536).endswith(b"{}"):
                        pass
                asked.set()
                assert still.wait(20.0)
                first.sendall(response[:50_000])
                responded.set()
                first.sendall(response[50_000:])
                assert second.recv(1) == b""  # until it is broken off

        thread = threading.Thread(target=serve)
        thread.start()
        began = time.monotonic()
        target = target_of(f"http://127.0.0.1:{server.getsockname()[1]}/late", timeout_seconds=1.0)
        steps = target.steps(requests(2), later(), TransferSlot(engine))
        assert next(steps) is None
        while not asked.is_set():
            engine.wait(0.01)
        still.set()
        assert responded.wait(20.0)
        while time.monotonic() < began + 1.1:
            thread.join(0.1)
        ends = []
        for step in steps:
            if isinstance(step, tuple):
                ends.append(step[1])
            else:
                engine.wait(1.0)
        thread.join()

    assert [each.error_class for each in ends] == [None, "Timeout"]
    assert ends[0].accepted
    assert 1000 <= ends[1].duration_ms < 60_000
    assert ends[1].error == "Operation timed out with 0 bytes received", "without its time, which differs each time"


def test_a_request_without_a_response_is_given_up_by_the_first_look_after_its_time(
    engine: HttpEngine, receiver: Receiver
) -> None:
    """A check after its time-out ends it; stalls of this process do not count as its time."""
    slot = TransferSlot(engine)
    steps = target_of(receiver.url("/hang/engine"), timeout_seconds=1.0).steps(requests(1), later(), slot)
    assert next(steps) is None
    [exchange] = slot.flying.values()
    while not engine.wait(0.0) and not receiver.requests():
        pass
    over_at = time.monotonic() + 1.0  # at the latest: it went out before
    looks, reported = [0.0], []
    for step in steps:
        if isinstance(step, tuple):
            reported.append(step[1].error_class)
        else:
            looks.append(time.monotonic())
            engine.wait(0.05)

    assert reported == ["Timeout"]
    assert looks[-2] <= over_at + slot.stalled_ms(exchange) / 1000


def test_the_time_of_a_request_begins_when_it_goes_out_whatever_else_gets_a_response_then(engine: HttpEngine) -> None:
    """A request that goes out while another target's response is read has no longer timeout than any other."""
    asked, still, responded = threading.Event(), threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as silent:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while not connection.recv(65536).endswith(b"{}"):
                    pass
                asked.set()
                assert still.wait(20.0)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                responded.set()
                connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        healthy = target_of(f"http://127.0.0.1:{server.getsockname()[1]}/healthy")
        hanging = target_of(f"http://127.0.0.1:{silent.getsockname()[1]}/hangs", timeout_seconds=1.0)
        quick = healthy.steps(requests(1), later(), TransferSlot(engine))
        assert next(quick) is None
        while not asked.is_set():
            engine.wait(0.01)
        still.set()
        assert responded.wait(20.0)

        stuck = hanging.steps(requests(1), later(), TransferSlot(engine))
        assert next(stuck) is None
        reported = []
        for step in stuck:
            if isinstance(step, tuple):
                reported.append(step[1])
            else:
                engine.wait(0.05)
        assert responses_of(engine, quick) == [0]

    assert [each.error_class for each in reported] == ["Timeout"]
    assert reported[0].duration_ms - reported[0].stalled_ms < 1_500
