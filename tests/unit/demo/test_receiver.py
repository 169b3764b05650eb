"""The test receiver itself: what it responds with, what it records, and its HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from demo.receiver import Receiver


def post(path: str, body: str = "", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


def talk(receiver: Receiver, *parts: bytes, until: bytes) -> bytes:
    """Send parts, each after a moment of its own, and return what comes back up to `until` or the end."""
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part)
        received = b""
        while until not in received:
            more = connection.recv(65536)
            if not more:
                break
            received += more
        return received


def seen(receiver: Receiver, path: str) -> list[dict[str, object]]:
    return [request for request in receiver.requests() if request["path"] == path]


def test_a_request_is_recorded_before_it_gets_a_response(receiver: Receiver) -> None:
    """Before the response is sent, the record is written: time, path, webhook-id, status, headers, body."""
    talk(receiver, post("/bad/crm?x=1", "hello", "webhook-id: w1"), until=b"customer")

    [request] = seen(receiver, "/bad/crm?x=1")
    assert (request["webhook_id"], request["status"], request["body"]) == ("w1", 400, b"hello")
    assert str(request["at"]).endswith("+00:00")


def test_pipelined_requests_get_a_response_in_order(receiver: Receiver) -> None:
    """Three requests in one packet: the slow first response holds back the others."""
    packet = post("/slow/p") + post("/bad/p") + post("/gone/p")
    responses = talk(receiver, packet, until=b"gone\n")

    indices = [responses.index(status) for status in (b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 410")]
    assert indices == sorted(indices)


def test_a_request_may_come_in_pieces(receiver: Receiver) -> None:
    """Every byte in a packet of its own is still one request."""
    data = post("/healthy/pieces", "abc", "webhook-id: w2")
    response = talk(receiver, *(data[n : n + 1] for n in range(len(data))), until=b"ok\n")

    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert [request["body"] for request in seen(receiver, "/healthy/pieces")] == [b"abc"]


def test_chunked_bodies_are_read(receiver: Receiver) -> None:
    """Chunks, extensions included, are put together; the next request on the connection is found behind them."""
    head = b"POST /healthy/chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    talk(receiver, head + b"3;a=b\r\nabc\r\n", b"A\r\n0123456789\r\n0\r\n\r\n" + post("/gone/behind"), until=b"gone\n")

    assert [request["body"] for request in seen(receiver, "/healthy/chunked")] == [b"abc0123456789"]
    assert len(seen(receiver, "/gone/behind")) == 1


def test_a_client_that_asks_first_is_encouraged(receiver: Receiver) -> None:
    """`Expect: 100-continue` gets its 100 before the body is sent."""
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=10) as connection:
        connection.sendall(post("/healthy/asked", "", "Expect: 100-continue").replace(b"Length: 0", b"Length: 2"))
        interim = connection.recv(65536)
        connection.sendall(b"hi")
        final = connection.recv(65536)

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert final.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / SMTP\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST /healthy HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /healthy HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /healthy HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /healthy HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"G" * 70_000,
    ],
)
def test_an_invalid_http_request_is_refused(receiver: Receiver, data: bytes) -> None:
    """Anything else gets 400 and hung up on."""
    response = talk(receiver, data, until=b"never")

    assert response.startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_http_1_0_and_close_end_the_connection(receiver: Receiver) -> None:
    """A client that wants the connection closed gets that."""
    for request in (post("/healthy", "", "Connection: close"), post("/healthy").replace(b"/1.1", b"/1.0")):
        response = talk(receiver, request, until=b"never")

        assert b"Connection: close" in response


def test_flaky_refuses_each_delivery_twice(receiver: Receiver) -> None:
    """503 with Retry-After twice for a webhook-id, then 200 for ever; another id starts again."""
    codes = []
    for webhook_id in ("f1", "f1", "f2", "f1", "f1"):
        response = talk(receiver, post("/flaky/crm", "", f"webhook-id: {webhook_id}"), until=b"\n")
        codes.append(int(response.split()[1]))

    assert codes == [503, 503, 503, 200, 200]


def test_hang_takes_and_never_responds(receiver: Receiver) -> None:
    """A request to /hang is recorded without a status, and its connection stays silent."""
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=0.3) as connection:
        connection.sendall(post("/hang/crm"))
        with pytest.raises(TimeoutError):
            connection.recv(1)

    assert [request["status"] for request in seen(receiver, "/hang/crm")] == [None]


@pytest.mark.parametrize("path", ["/", "/nowhere", "/status/20", "/status/abc", "/delay/soon"])
def test_an_unknown_path_is_not_found(receiver: Receiver, path: str) -> None:
    """An error in a path shows as 404 with the paths there are."""
    response = talk(receiver, post(path), until=b"slow")

    assert response.startswith(b"HTTP/1.1 404")


def test_received_lines_are_read_incrementally(tmp_path: Path) -> None:
    """A line that is half written is not there yet; the first ones are left away where that is asked."""
    log = tmp_path / "log"
    reading = Receiver(log)
    before = reading.requests()
    log.write_text('{"path": "/a"}\n{"path": ')
    half = reading.requests()
    with log.open("a") as more:
        more.write('"/b"}\n')

    assert (before, half) == ([], [{"path": "/a"}])
    assert reading.requests() == [{"path": "/a"}, {"path": "/b"}]
    assert reading.requests(1) == [{"path": "/b"}]


def test_waiting_for_requests_that_do_not_come(receiver: Receiver) -> None:
    """`wait_for` gives up after its time and says how many came."""
    with pytest.raises(TimeoutError, match="of 100000 requests"):
        receiver.wait_for(100_000, seconds=0.05)


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """A receiver started by a process that dies does not stay behind."""
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "demo.receiver", "--log", str(log), "--with-parent"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        port = int(child.stdout.readline())
        child.stdin.close()
        code = child.wait(timeout=10)

    assert port > 0
    assert code == 0


def test_it_ends_on_sigterm(tmp_path: Path) -> None:
    """Alone it serves until it is stopped, also with nothing on its standard input."""
    command = [sys.executable, "-m", "demo.receiver", "--log", str(tmp_path / "log.jsonl")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(post("/healthy"))
            response = connection.recv(65536)
        child.terminate()
        began = time.monotonic()
        code = child.wait(timeout=10)

    assert response.startswith(b"HTTP/1.1 200")
    assert (code, time.monotonic() - began < 5) == (0, True)


def test_injected_responses(receiver: Receiver) -> None:
    """A name without a setting is accepted; then the last setting counts, for that name alone."""
    responses = []
    for path in (
        "/scripted/crm",
        "/script/400/crm",
        "/scripted/crm",
        "/scripted/other",
        "/script/200/crm",
        "/scripted/crm",
    ):
        responses.append(talk(receiver, post(path), until=b"\r\n")[9:12])

    assert responses == [b"200", b"204", b"400", b"200", b"204", b"200"]


def test_deliveries_of_one_request_get_responses_and_are_recorded_one_by_one(receiver: Receiver) -> None:
    """Every second is refused once; the record has each one's id and its response."""
    path = "/each/503/2/1/crm"
    first = talk(receiver, post(path, "[1,2,3]", "webhook-ids: a,b,c"), until=b"]}")
    again = talk(receiver, post(path, "[2]", "webhook-ids: b"), until=b"]}")

    assert b"Content-Type: application/json" in first
    assert b'{"id": "b", "status": 503}' in first
    assert b'{"id": "b", "status": 200}' in again
    reported = [(request["webhook_ids"], request["item_statuses"]) for request in seen(receiver, path)]
    assert reported == [(["a", "b", "c"], [200, 503, 200]), (["b"], [200])]


def test_throttle_says_how_long_and_keeps_to_it(receiver: Receiver) -> None:
    """429 with the rest of the time until it is over, then 200."""
    first = talk(receiver, post("/throttle/1/crm"), until=b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 429 ")
    assert b"Retry-After: 1\r\n" in first

    def status() -> bytes:
        return talk(receiver, post("/throttle/1/crm"), until=b"\r\n\r\n").split()[1]

    seen_so_far = {status()}
    while b"200" not in seen_so_far:
        seen_so_far.add(status())
    assert seen_so_far <= {b"200", b"429"}
