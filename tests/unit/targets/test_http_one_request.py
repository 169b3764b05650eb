"""The HTTP target sends each request once, whatever becomes of its connection: a further one is a further attempt."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import uuid
from contextlib import closing, suppress
from pathlib import Path

import certificates
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import StreamEnded
from unit.loopback import LOOPBACK, later, now

from eventbridge.config.connection import Connection
from eventbridge.model.outcome import Response
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target

CLOSED = "the target closed the connection before a response came"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Responds to the first `good` requests, ends (`ending`) the connections of the next `bad`, responds to the rest.

    `ending`: `close`, `reset`, or `response` and close it; over HTTP/2 also `refuse` (the stream) and `goaway`.
    """

    def __init__(
        self, ending: str, *, good: int, bad: int = 1_000, certificate: Path | None = None, stops: bool = False
    ) -> None:
        self._ending = ending
        self._bad = range(good + 1, good + 1 + bad)
        self._stops = stops
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
            self._context.set_alpn_protocols(["h2"])
        self._counting = threading.Lock()
        self.requests = 0
        self.connections = 0
        self.seen_closed = 0
        self.closed = threading.Semaphore(0)  # once for each connection that got a response and was closed
        scheme = "https" if certificate is not None else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}/crm"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Listen no longer."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                serve = self._serve if self._context is None else self._serve_http2
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def _is_good(self) -> bool:
        with self._counting:
            self.requests += 1
            return self.requests not in self._bad

    def _end(self, connection: socket.socket) -> None:
        if self._stops:
            self._listener.close()
        if self._ending == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while _read(connection):
                if not self._is_good():
                    if self._ending == "response":
                        connection.sendall(_OK)
                    self._end(connection)
                    break
                connection.sendall(_OK)
        self.closed.release()

    def _serve_http2(self, plain: socket.socket) -> None:
        assert self._context is not None
        with self._context.wrap_socket(plain, server_side=True) as connection, suppress(OSError):
            http = H2Connection(H2Configuration(client_side=False))
            http.initiate_connection()
            connection.sendall(http.data_to_send())
            while data := connection.recv(65536):
                for event in http.receive_data(data):
                    if not isinstance(event, StreamEnded):
                        continue
                    if self._is_good():
                        http.send_headers(event.stream_id, [(":status", "200")], end_stream=True)
                    elif self._ending == "response":
                        http.send_headers(event.stream_id, [(":status", "200")], end_stream=True)
                        connection.sendall(http.data_to_send())
                        connection.shutdown(socket.SHUT_WR)  # a close would take back what is still on its way
                        self.closed.release()
                        while connection.recv(65536):
                            pass
                        return
                    elif self._ending == "refuse":
                        http.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
                    elif self._ending == "goaway":
                        http.close_connection(last_stream_id=event.stream_id - 2)
                        connection.sendall(http.data_to_send())
                        return
                    else:
                        self._end(connection)
                        return
                connection.sendall(http.data_to_send())


def _read(connection: socket.socket) -> bytes:
    """Return one request, or nothing if the client leaves."""
    data = b""
    with suppress(ConnectionResetError):
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return b""
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(body)
        while left > 0:
            left -= len(connection.recv(65536))
    return data


def target_of(server: Server, *, in_flight: int = 1, ca: str | None = None) -> Target:
    fields = {"name": "crm", "url": server.url, "allow_http": True, "max_in_flight": in_flight, "timeout_seconds": 10.0}
    held = Connection("crm", "http", extra={"any_host": True, "ca_certificate": ca})
    rule = HttpFields.model_validate(fields | ({"connection": "crm"} if ca else {}))
    return open_target("r", rule, lambda _: held, now, LOOPBACK)


def responses_of(target: Target, count: int, payload: bytes = b"{}") -> list[Response]:
    requests = [Request(n, str(uuid.uuid4()), payload, "application/json") for n in range(count)]
    return [response for _, response in target.deliver(requests, later())]


def said(responses: list[Response]) -> list[tuple[bool, str | None, str | None]]:
    return [(each.accepted, each.error_class, each.error) for each in responses]


@pytest.mark.parametrize("payload", [b"", b"{}", b"x" * 3_000_000], ids=["empty", "small", "large"])
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_request_on_a_kept_connection_that_closes_is_sent_once(ending: str, payload: bytes) -> None:
    """Six idle connections to the target would have been six requests for one delivery."""
    with closing(Server(ending, good=60)) as server, closing(target_of(server, in_flight=6)) as target:
        assert all(response.accepted for response in responses_of(target, 60))
        [response] = responses_of(target, 1, payload)

    assert server.requests == 61
    assert not response.accepted
    assert response.error_class == "NetworkError"
    assert response.error in (CLOSED, "Recv failure: Connection reset by peer", "Send failure: Broken pipe")


def test_the_next_request_has_a_connection_of_its_own() -> None:
    """A connection that closed without a response is one failed attempt, and costs the next request nothing."""
    with closing(Server("close", good=1, bad=1)) as server, closing(target_of(server)) as target:
        responses = responses_of(target, 4)

    assert said(responses) == [
        (True, None, None),
        (False, "NetworkError", CLOSED),
        (True, None, None),
        (True, None, None),
    ]
    assert server.requests == 4


def test_a_target_that_stops_after_it_took_a_request_is_not_said_to_refuse_the_connection() -> None:
    """The request went out: that its caller no longer listens does not change its outcome."""
    with closing(Server("close", good=1, stops=True)) as server, closing(target_of(server)) as target:
        responses = responses_of(target, 2)

    assert said(responses) == [(True, None, None), (False, "NetworkError", CLOSED)]
    assert server.requests == 2


def test_a_connection_that_was_idle_for_seconds_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers close a connection after some seconds without a request, and a request must not cross with that."""
    monkeypatch.setattr("eventbridge.targets.http.endpoint._IDLE_SECONDS", 1)
    with closing(Server("close", good=100)) as server, closing(target_of(server)) as target:
        responses = responses_of(target, 3)
        before = server.connections
        threading.Event().wait(1.2)
        responses += responses_of(target, 3)

    assert [response.accepted for response in responses] == [True] * 6
    assert (before, server.connections) == (1, 2)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate for this machine, signed by itself."""
    return certificates.self_signed().write(tmp_path_factory.mktemp("certificate") / "own.pem")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_a_connection_that_was_closed_while_idle_is_not_used(own: Path, version: str) -> None:
    """A server may close an idle connection at any time; the next deliveries do not notice."""
    secure = version == "HTTP/2"
    with (
        closing(Server("response", good=0, certificate=own if secure else None)) as server,
        closing(target_of(server, in_flight=3, ca=own.read_text() if secure else None)) as target,
    ):
        responses = []
        for requests in (1, 1, 1, 1, 1, 1) if secure else (1, 1, 3, 1):
            responses += responses_of(target, requests)
            for _ in range(server.connections - server.seen_closed):
                assert server.closed.acquire(timeout=20.0)
                server.seen_closed += 1

    assert [response.accepted for response in responses] == [True] * 6
    assert (server.requests, server.connections) == (6, 6)


@pytest.mark.parametrize("ending", ["refuse", "goaway"])
def test_a_request_that_an_http2_server_says_it_did_not_process_is_sent_again(ending: str, own: Path) -> None:
    """nginx gives each connection up after 1,000 requests: that must cost none of those on their way an attempt."""
    with (
        closing(Server(ending, good=1, bad=1, certificate=own)) as server,
        closing(target_of(server, ca=own.read_text())) as target,
    ):
        responses = responses_of(target, 4)

    assert [response.accepted for response in responses] == [True] * 4
    assert (server.requests, server.connections) == (5, 2)


@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_request_of_http2_is_sent_once(ending: str, own: Path) -> None:
    """A connection that closes after it took a request is one failed attempt."""
    with (
        closing(Server(ending, good=1, certificate=own)) as server,
        closing(target_of(server, ca=own.read_text())) as target,
    ):
        responses = responses_of(target, 2)

    assert server.requests == 2
    assert [response.accepted for response in responses] == [True, False]
    assert responses[1].error_class == "NetworkError"
