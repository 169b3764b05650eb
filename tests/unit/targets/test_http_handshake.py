"""`handshake`: a target is asked for its consent, as CloudEvents web hooks are, before anything is sent."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from unit.loopback import LOOPBACK, later, now
from unit.targets.test_http_requests_of_rules import read, send

from eventbridge.config.connection import Connection
from eventbridge.targets.http.exchange import Exchange
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Checkable, Request

ORIGIN = "events.shop.example"
#: The headers of a service that allows 60 requests a minute.
AT_60 = {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "60"}
FIELDS = f"handshake: {{origin: {ORIGIN}}}"


class Service(ThreadingHTTPServer):
    """A service that answers OPTIONS with a status and headers, and accepts every POST."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.silent = threading.Event()  # while it is set, OPTIONS gets no response
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        """A URL that no other test uses, because a process remembers what it was answered."""
        return f"http://127.0.0.1:{self.server_port}/{uuid.uuid4().hex}"

    @property
    def methods(self) -> list[str]:
        """The methods of the requests so far."""
        return [method for method, _ in self.seen]


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_OPTIONS(self) -> None:
        if self.server.silent.is_set():
            self.server.seen.append(("silent", {}))
            self.close_connection = True
            return
        self._respond(self.server.status, self.server.headers)

    def do_POST(self) -> None:
        self._respond(200, {})

    def _respond(self, status: int, headers: dict[str, str]) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.command, {name.lower(): value for name, value in self.headers.items()}))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    """Run a service in a thread."""
    with Service() as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("allowed", ["*", ORIGIN, ORIGIN.upper(), f"other.example, {ORIGIN}"])
def test_a_target_that_agrees_is_asked_once_and_gets_its_deliveries(
    service: Service, tmp_path: Path, allowed: str
) -> None:
    """The handshake has the origin and the credentials; the next push of the process does not ask again."""
    service.headers = {"WebHook-Allowed-Origin": allowed, "WebHook-Allowed-Rate": "*"}
    url = service.url
    connection = Connection("crm", "http", f"http://127.0.0.1:{service.server_port}", extra={"token": "t-4711-abc"})
    spec = read(tmp_path, url, f"connection: crm, {FIELDS}, rate: 2/s")

    for _ in range(2):
        assert all(response.accepted for response in send(spec, [b"1", b"2"], connection))

    assert service.methods == ["OPTIONS", "POST", "POST", "POST", "POST"]
    asked = service.seen[0][1]
    assert (asked["webhook-request-origin"], asked["webhook-request-rate"]) == (ORIGIN, "120")
    assert asked["authorization"] == "Bearer t-4711-abc"
    assert "webhook-id" not in asked


@pytest.mark.parametrize(
    ("status", "headers", "fields", "said"),
    [
        (405, {}, "", "responded to the handshake with HTTP 405. Allow the origin"),
        (200, {}, "", "has no WebHook-Allowed-Origin"),
        (200, {"WebHook-Allowed-Origin": "other.example"}, "", f"does not allow the origin {ORIGIN}"),
        (200, {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "60"}, "", "Write rate: 60/m, or less"),
        (
            200,
            {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "60"},
            ", rate: 2/s",
            "Write rate: 60/m, or less",
        ),
        *(
            (200, {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": rate}, "", "is neither * nor a number")
            for rate in ("many", "0", "060", "12345678901")
        ),
    ],
)
def test_a_target_that_does_not_agree_gets_nothing(
    service: Service, tmp_path: Path, status: int, headers: dict[str, str], fields: str, said: str
) -> None:
    """Each delivery says why, the target is asked once for all of them, and a check says the same."""
    service.status, service.headers = status, headers
    spec = read(tmp_path, service.url, FIELDS + fields)

    responses = send(spec, [b"1", b"2"])

    assert [(each.accepted, each.code, each.error_class) for each in responses] == [
        (False, None, "HandshakeRefused")
    ] * 2
    assert said in (responses[0].error or "")
    assert service.methods == ["OPTIONS"]
    assert check(spec) == f"HandshakeRefused: {responses[0].error}"


def test_a_handshake_without_a_response_is_asked_again_by_the_next_delivery(service: Service, tmp_path: Path) -> None:
    """It says nothing about the target's consent, so nothing is remembered; the error class is that of the request."""
    service.headers = {"WebHook-Allowed-Origin": "*"}
    spec = read(tmp_path, service.url, FIELDS)
    service.silent.set()

    failed = send(spec, [b"1", b"2"])
    service.silent.clear()
    accepted = send(spec, [b"1", b"2"])

    assert [each.error_class for each in failed] == ["NetworkError"] * 2
    assert (failed[0].error or "").startswith("no response to the handshake: ")
    assert [each.code for each in accepted] == [200, 200]


def test_an_agreement_stays_while_its_renewal_gets_no_response(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target agreed before, and takes requests; it is asked again half a minute later, not for each push."""
    service.headers = {"WebHook-Allowed-Origin": "*"}
    spec = read(tmp_path, service.url, FIELDS)
    monkeypatch.setattr("eventbridge.targets.http.handshake._AGREED_SECONDS", 0.0)
    send(spec, [b"1"])
    service.silent.set()

    assert [each.code for _ in range(2) for each in send(spec, [b"1"])] == [200, 200]
    assert service.methods == ["OPTIONS", "POST", "silent", "POST", "POST"]


def test_too_little_time_for_the_handshake_is_no_failure_of_a_delivery(tmp_path: Path) -> None:
    """A target that would have responded later is not blamed: nothing is sent, and no delivery has a response."""
    with socket.create_server(("127.0.0.1", 0)) as slow:
        spec = read(tmp_path, f"http://127.0.0.1:{slow.getsockname()[1]}/x", FIELDS)
        with closing(open_target("big", spec, lambda _: pytest.fail("no connection"), now, LOOPBACK)) as target:
            request = Request(0, str(uuid.uuid4()), b"{}", "application/json")

            assert list(target.deliver([request], later(0.3))) == []


def test_many_deliveries_at_once_ask_once(service: Service, tmp_path: Path) -> None:
    """Runs that need the same agreement wait for one handshake."""
    service.headers = {"WebHook-Allowed-Origin": "*"}
    spec = read(tmp_path, service.url, FIELDS)

    with ThreadPoolExecutor(8) as threads:
        responses = [each for found in threads.map(lambda _: send(spec, [b"1"]), range(8)) for each in found]

    assert [each.code for each in responses] == [200] * 8
    assert service.methods.count("OPTIONS") == 1


def test_runs_that_wait_for_a_handshake_share_its_failure(tmp_path: Path) -> None:
    """Otherwise each would wait for its own timeout, one after another, in a thread that other targets need."""
    with socket.create_server(("127.0.0.1", 0)) as slow:
        spec = read(tmp_path, f"http://127.0.0.1:{slow.getsockname()[1]}/x", f"{FIELDS}, timeout: 1s")
        began = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            responses = [each for found in threads.map(lambda _: send(spec, [b"1"]), range(8)) for each in found]

    assert {each.error_class for each in responses} == {"Timeout"}
    assert time.monotonic() - began < 4


def test_a_check_asks_even_if_the_process_knows_the_answer(service: Service, tmp_path: Path) -> None:
    """Its answer is what the next push of the process goes by."""
    service.headers = {"WebHook-Allowed-Origin": "*"}
    spec = read(tmp_path, service.url, FIELDS)
    send(spec, [b"1"])
    service.status = 403

    assert "HTTP 403" in (check(spec) or "")
    assert [each.error_class for each in send(spec, [b"1"])] == ["HandshakeRefused"]
    service.status = 200
    assert check(spec) is None
    assert [each.code for each in send(spec, [b"1"])] == [200]


def test_a_handshake_closes_its_handle_whatever_happens(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while the response is read leaks no connection."""
    closed: list[Exchange] = []
    monkeypatch.setattr(Exchange, "close", lambda self: (closed.append(self), self.curl.close()))
    monkeypatch.setattr(Exchange, "header", lambda self, name: 1 / 0)
    spec = read(tmp_path, service.url, FIELDS)

    with pytest.raises(ZeroDivisionError):
        check(spec)

    assert len(closed) == 1


def check(spec: object) -> str | None:
    """Return what `targets check` finds."""

    def connections(_: str) -> Connection:
        raise AssertionError

    with closing(open_target("big", spec, connections, now, LOOPBACK)) as target:  # type: ignore[arg-type]
        assert isinstance(target, Checkable)
        return target.check()


def test_a_rate_within_the_allowed_one_is_agreed_on(service: Service, tmp_path: Path) -> None:
    """With batch requests, too; a check asks and finds nothing wrong."""
    service.headers = AT_60
    spec = read(tmp_path, service.url, f"{FIELDS}, rate: 1/s, batch: {{count: 2}}")

    assert check(spec) is None
    assert all(response.accepted for response in send(spec, [b"1", b"2"]))
    assert service.methods == ["OPTIONS", "POST"]


def test_the_handshake_goes_to_allowed_addresses_only(service: Service, tmp_path: Path) -> None:
    """SSRF protection is that of a delivery."""
    spec = read(tmp_path, service.url, FIELDS)

    with closing(open_target("big", spec, lambda _: pytest.fail("no connection"), now)) as target:
        assert isinstance(target, Checkable)
        assert "AddressRefused" in (target.check() or "")
        [(_, response)] = target.deliver([Request(0, str(uuid.uuid4()), b"{}", "application/json")], later())

    assert (response.error_class, service.seen) == ("AddressRefused", [])
