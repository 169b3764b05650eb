"""The HTTP target against a real receiver: what goes out, and what each response or failure comes to."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
import uuid
from contextlib import closing
from datetime import datetime

import pytest
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, later, now

from eventbridge import __version__
from eventbridge.config.connection import Connection
from eventbridge.model.outcome import Response
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target


def no_connection(connection_id: str) -> Connection:
    raise AssertionError(f"unexpected look-up of {connection_id}")


def target_of(url: str, *, timeout_seconds: float = 10.0, max_in_flight: int = 8) -> Target:
    rule = HttpFields(
        name="crm",
        url=url,
        allow_http=True,
        timeout_seconds=timeout_seconds,
        max_in_flight=max_in_flight,
    )
    return open_target("r", rule, no_connection, now, LOOPBACK)


def a_request(index: int = 0, payload: bytes = b"{}", **fields: object) -> Request:
    return Request(index, str(uuid.uuid4()), payload, "application/json", **fields)  # type: ignore[arg-type]


def response_of(url: str, *, timeout_seconds: float = 10.0, until: datetime | None = None) -> Response:
    """Deliver one request and return its response."""
    with closing(target_of(url, timeout_seconds=timeout_seconds)) as target:
        [(_, response)] = list(target.deliver([a_request()], until or later()))
        return response


def seen(receiver: Receiver, path: str) -> list[dict[str, object]]:
    return [request for request in receiver.requests() if request["path"] == path]


def test_the_request_has_payload_and_standard_headers(receiver: Receiver) -> None:
    """A delivery is a POST with the payload as its body and the headers of Standard Webhooks and W3C tracing."""
    request = Request(0, "01234567-89ab-8def-8123-456789abcdef", '{"ü":1}'.encode(), "application/cloudevents+json")
    with closing(target_of(receiver.url("/healthy/out"))) as target:
        list(target.deliver([request], later()))

    [got] = seen(receiver, "/healthy/out")
    headers = got["headers"]
    assert got["body"] == request.payload
    assert isinstance(headers, dict)
    timestamp = int(headers.pop("webhook-timestamp"))
    assert abs(timestamp - time.time()) < 30
    assert headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "user-agent": f"EventBridge/{__version__}",
        "accept": "*/*",
        "content-type": "application/cloudevents+json",
        "content-length": "8",
        "webhook-id": "01234567-89ab-8def-8123-456789abcdef",
        "traceparent": "00-0123456789ab8def8123456789abcdef-8123456789abcdef-01",
    }


def test_each_request_has_its_own_content_type(receiver: Receiver) -> None:
    """Requests of one delivery may differ in their content type."""
    types = ["application/json", "text/plain", "text/plain", "application/json"]
    requests = [Request(n, str(uuid.uuid4()), b"", name) for n, name in enumerate(types)]
    with closing(target_of(receiver.url("/healthy/types"), max_in_flight=1)) as target:
        list(target.deliver(requests, later()))

    got = [request["headers"]["content-type"] for request in seen(receiver, "/healthy/types")]  # type: ignore[index]
    assert got == types


def test_a_payload_without_a_content_type_is_sent_without_one(receiver: Receiver) -> None:
    """Neither an empty one nor the one that libcurl would send; the next request has its own again."""
    requests = [Request(n, str(uuid.uuid4()), b"\0", kind) for n, kind in enumerate(["", "text/plain", ""])]
    with closing(target_of(receiver.url("/healthy/untyped"), max_in_flight=1)) as target:
        list(target.deliver(requests, later()))

    got = [request["headers"].get("content-type") for request in seen(receiver, "/healthy/untyped")]  # type: ignore[attr-defined]
    assert got == [None, "text/plain", None]


def test_an_events_headers_go_out_too(receiver: Receiver) -> None:
    """Binary mode's ce-* headers are sent, empty and non-ASCII ones included; the event's own trace is continued."""
    brought = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    headers = {"ce-id": "1", "ce-note": "", "ce-name": "Zoë", "traceparent": brought}
    with closing(target_of(receiver.url("/healthy/headers"))) as target:
        [(_, response)] = target.deliver([a_request(headers=headers)], later())

    assert response.accepted
    [got] = seen(receiver, "/healthy/headers")
    sent = got["headers"]
    assert isinstance(sent, dict)
    assert (sent["ce-id"], sent["ce-note"], sent["traceparent"]) == ("1", "", brought)
    assert sent["ce-name"].encode("latin-1").decode() == "Zoë"


def test_a_large_payload_goes_out_without_asking_first(receiver: Receiver) -> None:
    """A body of 3 MiB is sent at once: no `Expect: 100-continue`, which costs a round trip or a second."""
    payload = b"x" * 3 * 1024 * 1024
    with closing(target_of(receiver.url("/healthy/large"))) as target:
        [(_, response)] = target.deliver([a_request(payload=payload)], later())

    assert response.accepted
    [got] = seen(receiver, "/healthy/large")
    assert got["body"] == payload
    assert "expect" not in got["headers"]  # type: ignore[operator]


@pytest.mark.parametrize(
    "headers",
    [
        {"ce-x": "a\r\nevil: 1"},
        {"ce-x": "a\nevil: 1"},
        {"ce-x": "a\x00"},
        {"ce-x\r\nevil": "1"},
        {"ce x": "1"},
        {"": "1"},
        {"ce-x": "\ud800"},
        {"Content-Length": "0"},
        {"transfer-encoding": "chunked"},
        {"webhook-id": "another"},
        {"Webhook-Whatever": "1"},
        {"Proxy-Connection": "close"},
        {"cookie": "stolen=1"},
        {"Content-Encoding": "gzip"},
        {"Host": "elsewhere.example"},
        {":path": "/elsewhere"},
        {"Authorization": "Bearer stolen"},
    ],
)
def test_a_header_that_could_do_harm_is_refused(receiver: Receiver, headers: dict[str, str]) -> None:
    """No event can write headers of its own, or the target's: it is not sent, and its neighbours are."""
    path = f"/healthy/{uuid.uuid4()}"
    requests = [a_request(0), a_request(1, headers=headers), a_request(2)]
    with closing(target_of(receiver.url(path))) as target:
        responses = dict(target.deliver(requests, later()))

    assert responses[0].accepted
    assert responses[2].accepted
    assert (responses[1].accepted, responses[1].code, responses[1].error_class) == (False, None, "InvalidHeader")
    assert len(seen(receiver, path)) == 2


def test_a_content_type_that_could_do_harm_is_refused(receiver: Receiver) -> None:
    """A line break in the content type is refused like one in any header."""
    with closing(target_of(receiver.url("/healthy/type"))) as target:
        [(_, response)] = target.deliver([Request(0, str(uuid.uuid4()), b"", "text/plain\r\nevil: 1")], later())

    assert response.error_class == "InvalidHeader"


@pytest.mark.parametrize("code", [200, 201, 204, 299, 301, 307, 400, 404, 410, 429, 500, 503, 600, 999])
def test_the_code_is_the_response(receiver: Receiver, code: int) -> None:
    """A response carries its HTTP status; 2xx alone is accepted."""
    response = response_of(receiver.url(f"/status/{code}"))

    assert (response.code, response.accepted, response.error_class) == (code, code < 300, None)


def test_retry_after_comes_with_the_response(receiver: Receiver) -> None:
    """The header is handed on as it came."""
    response = response_of(receiver.url("/retry-after/120"))

    assert (response.code, response.retry_after, response.abort) == (503, "120", False)


def test_the_abort_header_comes_with_the_response(receiver: Receiver) -> None:
    """`webhook-delivery: abort-message` sets `abort`."""
    response = response_of(receiver.url("/abort"))

    assert (response.code, response.retry_after, response.abort) == (500, None, True)


def test_only_the_final_responses_headers_count(receiver: Receiver) -> None:
    """What a 103 says before is not the response."""
    response = response_of(receiver.url("/hint"))

    assert (response.code, response.retry_after, response.abort) == (503, "5", False)


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    """A 302 is a response; it is not followed."""
    response = response_of(receiver.url("/redirect/elsewhere"))

    assert response.code == 302
    assert seen(receiver, "/healthy/redirected") == []


def test_the_responses_beginning_is_kept(receiver: Receiver) -> None:
    """A short body is kept whole."""
    assert response_of(receiver.url("/bad/body")).response_head == b"no such customer\n"


def test_a_huge_body_is_cut_off(receiver: Receiver) -> None:
    """Of a body that would take hours 1 MB is read and 20 KB are kept; its code counts, and the target continues."""
    with closing(target_of(receiver.url("/huge"), max_in_flight=2, timeout_seconds=5.0)) as target:
        responses = [response for _, response in target.deliver([a_request(n) for n in range(5)], later())]

    assert [(response.accepted, response.code) for response in responses] == [(True, 200)] * 5
    assert [response.response_head for response in responses] == [b"x" * 20 * 1024] * 5


@pytest.mark.parametrize("path", ["/head", "/heads"])
def test_a_huge_head_is_cut_off(receiver: Receiver, path: str) -> None:
    """Of headers without end libcurl reads 300 KB, then the connection is dropped; the code counts."""
    with closing(target_of(receiver.url(path), max_in_flight=2)) as target:
        responses = [response for _, response in target.deliver([a_request(n) for n in range(4)], later())]

    assert [(response.accepted, response.code) for response in responses] == [
        (path == "/head", 200 if path == "/head" else 503)
    ] * 4


def test_a_body_that_never_ends_times_out(receiver: Receiver) -> None:
    """The timeout is for the whole response, not for its first byte."""
    began = time.monotonic()
    response = response_of(receiver.url("/drip"), timeout_seconds=0.4)

    assert (response.accepted, response.code, response.error_class) == (False, None, "Timeout")
    assert 0.35 < time.monotonic() - began < 5
    assert 350 < response.duration_ms < 5000


def test_no_response_times_out(receiver: Receiver) -> None:
    """A target that accepts and never responds costs its timeout."""
    response = response_of(receiver.url("/hang"), timeout_seconds=0.3)

    assert (response.accepted, response.code, response.error_class) == (False, None, "Timeout")


def test_a_connection_that_breaks_off_is_no_response(receiver: Receiver) -> None:
    """A 200 whose body is cut short was perhaps meant, and perhaps a proxy's: it is tried again."""
    response = response_of(receiver.url("/cut"))

    assert (response.accepted, response.code, response.error_class) == (False, None, "NetworkError")
    assert "after status 200" in (response.error or "")


def test_nothing_listens() -> None:
    """A port without a listener is ConnectionRefused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: no other process can take it meanwhile
        response = response_of(f"http://127.0.0.1:{taken.getsockname()[1]}/")

    assert (response.accepted, response.code, response.error_class) == (False, None, "ConnectionRefused")


def test_an_unknown_host() -> None:
    """A name that does not resolve is HostUnknown (RFC 2606 keeps .invalid unknown)."""
    response = response_of("http://nothing.invalid/")

    assert (response.accepted, response.code, response.error_class) == (False, None, "HostUnknown")


def test_a_response_that_is_not_http_is_a_network_error() -> None:
    """A server that speaks another protocol gives no response."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        response = response_of(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()

    assert (response.accepted, response.code, response.error_class) == (False, None, "NetworkError")


def test_a_request_in_flight_at_the_end_is_interrupted(receiver: Receiver) -> None:
    """At `until` what was sent and not responded to is given up at once; what was not sent has no response."""
    began = time.monotonic()
    with closing(target_of(receiver.url("/hang/until"), max_in_flight=3)) as target:
        responses = dict(target.deliver([a_request(n) for n in range(5)], later(0.5)))

    assert time.monotonic() - began < 5
    assert sorted(responses) == [0, 1, 2]
    assert {(response.accepted, response.error_class) for response in responses.values()} == {(False, "Interrupted")}
    assert all(400 < response.duration_ms < 5000 for response in responses.values())
    assert len(receiver.wait_for(3)) >= 3
    assert len(seen(receiver, "/hang/until")) == 3


def test_closing_gives_up_what_is_in_flight(receiver: Receiver) -> None:
    """Closing the generator while a request hangs returns at once, and all places are free for the next delivery."""
    refused = a_request(1, headers={"bad name": ""})  # has its response while request 0 hangs
    began = time.monotonic()
    with closing(target_of(receiver.url("/hang/closed"), max_in_flight=2)) as target:
        with closing(target.deliver([a_request(0), refused, a_request(2)], later())) as responses:
            assert next(responses)[0] == 1
        after = dict(target.deliver([a_request(n) for n in range(3, 6)], later(0.3)))

    assert {index: response.error_class for index, response in after.items()} == {3: "Interrupted", 4: "Interrupted"}
    assert time.monotonic() - began < 5


def test_requests_are_really_parallel(receiver: Receiver) -> None:
    """Of 1,000 requests exactly `max_in_flight` are open at once, as the receiver sees it."""
    with closing(target_of(receiver.url("/delay/20"), max_in_flight=32)) as target:
        responses = list(target.deliver([a_request(n) for n in range(1000)], later(60)))

    got = seen(receiver, "/delay/20")
    assert sum(response.accepted for _, response in responses) == 1000
    assert len({request["webhook_id"] for request in got}) == len(got) == 1000
    assert max(int(str(request["in_flight"])) for request in got) == 32


def test_connections_are_used_again(receiver: Receiver) -> None:
    """Connections stay open over requests and over calls of `deliver`."""
    with closing(target_of(receiver.url("/healthy/again"), max_in_flight=4)) as target:
        for _ in range(3):
            list(target.deliver([a_request(n) for n in range(40)], later()))

    got = seen(receiver, "/healthy/again")
    assert len(got) == 120
    assert 1 <= len({request["connection"] for request in got}) <= 4


def test_proxies_of_the_environment_are_ignored(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's http_proxy does not see the deliveries."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert response_of(receiver.url("/healthy/direct")).accepted


def test_descriptors_above_1023_are_no_limit(receiver: Receiver) -> None:
    """A push task with many targets has more sockets than select() can watch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    null = os.open("/dev/null", os.O_RDONLY)
    held = [null, *(os.dup(null) for _ in range(1100))]
    began = time.monotonic()
    try:
        with closing(target_of(receiver.url("/slow/many"), max_in_flight=5)) as target:
            responses = list(target.deliver([a_request(n) for n in range(10)], later()))
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert [response.accepted for _, response in responses] == [True] * 10
    assert time.monotonic() - began < 5


def test_one_delivery_at_a_time(receiver: Receiver) -> None:
    """A second `deliver` while the first is open is a programming error, and is reported as such."""
    with closing(target_of(receiver.url("/slow"), max_in_flight=1)) as target:
        first = target.deliver([a_request(0), a_request(1)], later())
        next(first)
        second = target.deliver([a_request(2)], later())
        with pytest.raises(RuntimeError):
            next(second)
        first.close()


def test_waiting_costs_no_cpu(receiver: Receiver) -> None:
    """While a target hangs its thread sleeps."""
    before = time.thread_time()
    response_of(receiver.url("/hang/idle"), until=later(1.0))

    assert time.thread_time() - before < 0.2
