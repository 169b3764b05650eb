"""TLS of the HTTP target: trusted servers, client certificates, and the protocol inside."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path

import certificates
import pytest
from cryptography import x509
from demo.receiver import ADDRESSES, Receiver

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable
from eventbridge.model.outcome import Response
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target

LOOPBACK = (ip_network(ADDRESSES),)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate for the receiver's own address, signed by itself."""
    return certificates.self_signed().write(tmp_path_factory.mktemp("certificate") / "own.pem")


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory, own: Path) -> Iterator[Receiver]:
    """Run a receiver that speaks TLS with that certificate, HTTP/2 too."""
    with Receiver(tmp_path_factory.mktemp("tls") / "log.jsonl", certificate=own, http2=True, whole=True) as running:
        yield running


def now() -> datetime:
    return datetime.now(UTC)


def opened(url: str, extra: Mapping[str, object] | None = None, **fields: object) -> Target:
    rule = HttpFields.model_validate(
        {"name": "crm", "type": "http", "url": url, "connection": "crm", "timeout_seconds": 5.0, **fields}
    )
    held = Connection("crm", "http", extra={"any_host": True, **(extra or {})})
    return open_target("r", rule, lambda _: held, now, LOOPBACK)


def responses_of(target: Target, number: int = 1) -> list[Response]:
    requests = [Request(n, str(uuid.uuid4()), b"{}", "application/json") for n in range(number)]
    with closing(target):
        return [response for _, response in target.deliver(requests, now() + timedelta(seconds=30))]


def response_of(url: str, extra: Mapping[str, object] | None = None) -> Response:
    [response] = responses_of(opened(url, extra))
    return response


def outcome(response: Response) -> tuple[bool, int | None, str | None]:
    return response.accepted, response.code, response.error_class


def test_a_self_signed_server_is_refused(receiver: Receiver) -> None:
    """Nothing is sent to a server that no CA vouches for."""
    response = response_of(receiver.url("/healthy/unknown"))

    assert outcome(response) == (False, None, "TlsError")
    assert [request for request in receiver.requests() if request["path"] == "/healthy/unknown"] == []


def test_a_trusted_server_is_delivered_to(receiver: Receiver, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CA certificate of one's own is trusted by SSL_CERT_FILE."""
    monkeypatch.setenv("SSL_CERT_FILE", str(own))

    assert response_of(receiver.url("/healthy/trusted")).accepted


@pytest.mark.parametrize("form", ["pem", "path"])
def test_a_connection_names_its_ca(receiver: Receiver, own: Path, form: str) -> None:
    """Extra `ca_certificate`, PEM or a path, vouches for the servers of this connection."""
    extra = {"ca_certificate": own.read_text() if form == "path" else str(own)}

    assert response_of(receiver.url("/healthy/by-connection"), extra).accepted


def test_the_ca_of_a_connection_is_the_only_one(receiver: Receiver, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's CAs do not count for a connection that names its own CA."""
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    other = certificates.ca().certificate.decode()

    assert outcome(response_of(receiver.url("/healthy"), {"ca_certificate": other})) == (False, None, "TlsError")


def test_a_trusted_server_of_another_name_is_refused(tmp_path: Path) -> None:
    """A certificate counts for the names in it alone."""
    other = certificates.self_signed(x509.DNSName("crm.example"))
    with Receiver(tmp_path / "log.jsonl", certificate=other.write(tmp_path / "other.pem")) as receiver:
        response = response_of(receiver.url("/healthy"), {"ca_certificate": other.certificate.decode()})

    assert outcome(response) == (False, None, "TlsError")


def test_a_server_without_tls_is_refused(tmp_path: Path) -> None:
    """https:// to a server that speaks plain HTTP is a TlsError, and nothing was sent in the clear."""
    with Receiver(tmp_path / "log.jsonl") as receiver:
        response = response_of(receiver.url("/healthy").replace("http://", "https://"))
        received = receiver.requests()

    assert outcome(response) == (False, None, "TlsError")
    assert received == []


def test_tls_before_1_2_is_refused(own: Path) -> None:
    """A server that speaks TLS 1.1 at most gets nothing, although we trust it and others would talk to it."""
    with _old_server(own) as (port, met):
        client = _old_context(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", port)) as plain, client.wrap_socket(plain) as talked:
            assert talked.version() == "TLSv1.1"
        response = response_of(f"https://127.0.0.1:{port}/healthy", {"ca_certificate": own.read_text()})

    assert outcome(response) == (False, None, "TlsError")
    assert met == ["TLSv1.1", "refused"]


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    """A server that asks for one gets that of the connection, whose key may be locked; without it nothing is sent."""
    trusted = certificates.ca()
    server, client = certificates.vouched_for(trusted), certificates.vouched_for(trusted)
    (tmp_path / "ca.pem").write_bytes(trusted.certificate)
    shown = {"client_certificate": client.certificate.decode(), "private_key": client.private("hush").decode()}
    extra = {"ca_certificate": trusted.certificate.decode()}
    files = {"certificate": server.write(tmp_path / "server.pem"), "client_ca_certificates": tmp_path / "ca.pem"}
    with Receiver(tmp_path / "log.jsonl", **files) as receiver:  # type: ignore[arg-type]
        with_it = response_of(receiver.url("/healthy"), extra | shown | {"private_key_password": "hush"})
        stranger = certificates.self_signed()
        strange = {"client_certificate": stranger.certificate.decode(), "private_key": stranger.private().decode()}
        refused = [response_of(receiver.url("/healthy"), extra | each) for each in ({}, strange)]
        received = receiver.requests()

    assert with_it.accepted
    assert [(each.accepted, each.code) for each in refused] == [(False, None)] * 2
    assert len(received) == 1


def test_http_2_is_spoken_where_it_is_offered(receiver: Receiver, own: Path) -> None:
    """Many requests at a time share one connection; each has its own response."""
    with closing(opened(receiver.url("/delay/20"), {"ca_certificate": str(own)}, max_in_flight=16)) as target:
        responses = responses_of(target, 64)

    got = [request for request in receiver.requests() if request["path"] == "/delay/20"]
    assert [response.code for response in responses] == [200] * 64
    assert len({request["connection"] for request in got}) == 1
    assert max(request["in_flight"] for request in got) == 16
    assert {request["headers"][":method"] for request in got} == {"POST"}


@pytest.mark.parametrize("path", ["huge", "drip", "hang", "cut", "abort", "retry-after/7", "bad"])
def test_responses_over_http_2_mean_the_same(receiver: Receiver, own: Path, tmp_path: Path, path: str) -> None:
    """What ends, never ends or is too large comes to the same as over HTTP/1.1, and neighbours do not notice."""
    seconds = 1.0 if path in ("drip", "hang") else 20.0
    with Receiver(tmp_path / "log.jsonl") as plain:
        [before] = responses_of(opened(plain.url(f"/{path}"), allow_http=True, timeout_seconds=seconds))
    target = opened(receiver.url(f"/{path}"), {"ca_certificate": str(own)}, max_in_flight=4, timeout_seconds=seconds)
    responses = responses_of(target, 4)

    found = {
        (each.accepted, each.code, each.error_class, each.retry_after, each.abort, each.response_head.rstrip(b"."))
        for each in [before, *responses]
    }
    assert len(found) == 1


def test_a_server_without_http_2_gets_http_1_1(tmp_path: Path, own: Path) -> None:
    """Connections of their own are made, as many as there are requests at a time, and kept."""
    with Receiver(tmp_path / "log.jsonl", certificate=own) as receiver:
        with closing(opened(receiver.url("/delay/20"), {"ca_certificate": str(own)}, max_in_flight=4)) as target:
            responses = responses_of(target, 40)
        connections = {request["connection"] for request in receiver.requests()}

    assert [response.code for response in responses] == [200] * 40
    assert 2 <= len(connections) <= 4


PAIR = certificates.self_signed()
OTHER = certificates.self_signed()


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"ca_certificate": "-----BEGIN CERTIFICATE-----\nhush"}, "contains no PEM certificate"),
        ({"ca_certificate": "/nowhere/ca.pem"}, "cannot be read: No such file or directory"),
        ({"ca_certificate": 5}, "not text"),
        ({"client_certificate": PAIR.certificate.decode()}, "has no extra `private_key`"),
        ({"private_key": PAIR.private().decode()}, "has no extra `client_certificate`"),
        ({"private_key_password": "hush"}, "no `private_key`"),
        ({"client_certificate": PAIR.certificate.decode(), "private_key": "hush\nhush"}, "neither PEM nor a path"),
        (
            {"client_certificate": PAIR.certificate.decode(), "private_key": OTHER.private().decode()},
            "does not match the first certificate",
        ),
        (
            {"client_certificate": PAIR.certificate.decode(), "private_key": PAIR.private("hush").decode()},
            "is locked",
        ),
        (
            {
                "client_certificate": PAIR.certificate.decode(),
                "private_key": PAIR.private("hush").decode(),
                "private_key_password": "hushed",
            },
            "cannot be unlocked",
        ),
        (
            {
                "client_certificate": PAIR.certificate.decode(),
                "private_key": PAIR.private().decode(),
                "private_key_password": "hush",
            },
            "has no password",
        ),
        (
            {"client_certificate": PAIR.certificate.decode(), "private_key": "-----BEGIN PRIVATE KEY-----\nhush"},
            "is not a PEM private key",
        ),
    ],
)
def test_an_unusable_value_is_reported_before_anything_is_sent(extra: Mapping[str, object], said: str) -> None:
    """The error names the connection and what is wrong, and shows nothing of a key or a password."""
    with pytest.raises(ConnectionUnusable) as caught:
        opened("https://crm.example/", extra)

    assert str(caught.value).startswith("Connection 'crm' has ")
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


def test_pem_in_a_connection_of_the_environment() -> None:
    """In the JSON form line ends are written as JSON writes them."""
    extra = {"ca_certificate": PAIR.certificate.decode()}
    text = json.dumps({"conn_type": "http", "host": "crm.example", "extra": extra})
    connection = Connection.from_text("crm", text)
    rule = HttpFields(name="crm", url="https://crm.example/", connection="crm")

    open_target("r", rule, lambda _: connection, now).close()


def _old_context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


class _old_server:
    """Serve TLS 1.1 to two clients, one after the other; gives the port, and what became of each handshake."""

    def __init__(self, certificate: Path) -> None:
        self._context = _old_context(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(30)
        self._met: list[str] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> tuple[int, list[str]]:
        self._thread.start()
        return self._socket.getsockname()[1], self._met

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)
        self._socket.close()

    def _serve(self) -> None:
        for _ in range(2):
            plain, _ = self._socket.accept()
            with plain:
                try:
                    with self._context.wrap_socket(plain, server_side=True) as talked:
                        self._met.append(str(talked.version()))
                except ssl.SSLError:
                    self._met.append("refused")
