"""`proxy`: requests go through an egress proxy, whose faults are its own, and SSRF protection stays as it is."""

from __future__ import annotations

import base64
import socket
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import certificates
import pytest
from connect_proxy import ENDLESS, ConnectProxy
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, later, now
from unit.targets.test_http_requests_of_rules import a_request, got, read

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable
from eventbridge.model.outcome import Response
from eventbridge.rules import Target
from eventbridge.targets.http import egress
from eventbridge.targets.http.exchange import Exchange
from eventbridge.targets.open import open_target
from eventbridge.targets.ssrf_guard import Network


def connection_of(port: int, **fields: object) -> Connection:
    """Return the connection of a proxy on this machine."""
    given = {"type": "http", "extra": {"egress_proxy": True}, **fields}
    return Connection("egress", host="127.0.0.1", port=port, **given)  # type: ignore[arg-type]


def send(spec: Target, proxy: Connection, count: int = 1, allowed: tuple[Network, ...] = LOOPBACK) -> list[Response]:
    """Deliver through a proxy and return the responses."""
    token = Connection("crm", "http", extra={"token": "t-4711-abc", "any_host": True})
    with closing(open_target("big", spec, {"egress": proxy, "crm": token}.__getitem__, now, allowed)) as target:
        return [response for _, response in target.deliver([a_request(n) for n in range(count)], later())]


def test_requests_go_through_the_proxy_which_gets_none_of_their_headers(receiver: Receiver, tmp_path: Path) -> None:
    """CONNECT has the address, not the name, and the proxy's login; the target gets its own credentials alone."""
    spec = read(
        tmp_path, f"http://localhost:{receiver.port}/healthy/tunnel", "proxy: egress, connection: crm, max_in_flight: 1"
    )
    with ConnectProxy() as proxy:
        responses = send(spec, connection_of(proxy.port, login="shop", password="pass-4711"), count=3)

    assert [response.code for response in responses] == [200] * 3
    [head] = proxy.connects
    assert head.startswith(f"CONNECT 127.0.0.1:{receiver.port} ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'shop:pass-4711').decode()}" in head
    assert "t-4711-abc" not in head
    for each in got(receiver, "/healthy/tunnel"):
        assert each["headers"]["authorization"] == "Bearer t-4711-abc"
        assert each["headers"]["host"] == f"localhost:{receiver.port}"
        assert "proxy-authorization" not in each["headers"]


def test_tls_within_the_tunnel_verifies_the_target(tmp_path: Path) -> None:
    """With its certificate authority a delivery succeeds; without it the error is the target's, not the proxy's."""
    certificate = certificates.self_signed().write(tmp_path / "own.pem")
    with (
        Receiver(tmp_path / "tls.jsonl", certificate=certificate, http2=True) as receiver,
        ConnectProxy() as proxy,
    ):
        found = []
        for extra in ({"ca_certificate": str(certificate)}, {}):
            held = {
                "crm": Connection("crm", "http", extra={"any_host": True, **extra}),
                "egress": connection_of(proxy.port),
            }
            spec = read(tmp_path, receiver.url("/healthy/tls"), "proxy: egress, connection: crm")
            with closing(open_target("big", spec, held.__getitem__, now, LOOPBACK)) as target:
                found += [response for _, response in target.deliver([a_request(0)], later())]

    assert [(each.code, each.error_class) for each in found] == [(200, None), (None, "TlsError")]
    assert len(proxy.connects) == 2


@pytest.mark.parametrize("status", [407, 502, 503, 403])
def test_a_refused_tunnel_is_the_proxys_fault(receiver: Receiver, tmp_path: Path, status: int) -> None:
    """The error names the proxy and its connection, and nothing reaches the target."""
    path = f"/healthy/refused{status}"
    spec = read(tmp_path, receiver.url(path), "proxy: egress")
    with ConnectProxy(status) as proxy:
        [response] = send(spec, connection_of(proxy.port, login="shop", password="pass-4711"))

    assert (response.code, response.error_class) == (None, "ProxyFailed")
    said = f"the proxy http://127.0.0.1:{proxy.port} (connection 'egress') responded to CONNECT with {status}"
    assert (response.error or "").startswith(said)
    assert got(receiver, path) == []


def test_a_response_to_connect_without_an_end_is_the_proxys_fault(receiver: Receiver, tmp_path: Path) -> None:
    """The target has not been asked."""
    spec = read(tmp_path, receiver.url("/healthy/endless"), "proxy: egress")
    with ConnectProxy(ENDLESS) as proxy:
        [response] = send(spec, connection_of(proxy.port))

    assert (response.code, response.error_class) == (None, "ProxyFailed")
    assert f"the proxy http://127.0.0.1:{proxy.port} (connection 'egress'): " in (response.error or "")


def test_a_proxy_that_is_down_is_the_proxys_fault(receiver: Receiver, tmp_path: Path) -> None:
    """A refused connection, too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    [response] = send(read(tmp_path, receiver.url("/healthy/down"), "proxy: egress"), connection_of(port))

    assert response.error_class == "ProxyFailed"
    assert (response.error or "").startswith(f"the proxy http://127.0.0.1:{port} (connection 'egress'): ")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
def test_a_proxy_is_no_way_to_internal_addresses(tmp_path: Path, host: str) -> None:
    """The target's addresses are checked before CONNECT; the proxy is not even connected to."""
    spec = read(tmp_path, f"http://{host}:9/x", "proxy: egress")
    with ConnectProxy() as proxy:
        [response] = send(spec, connection_of(proxy.port), allowed=())

    assert (response.error_class, proxy.connects) == ("AddressRefused", [])
    assert "EVENTBRIDGE_ALLOW_ADDRESSES" in (response.error or "")


def resolves_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let names in .example resolve to these addresses, in this order; return the list of the names asked for."""
    asked: list[str] = []

    real = socket.getaddrinfo

    def found(host: str, port: int, *args: Any, **fields: Any) -> Any:
        if not host.endswith(".example"):
            return real(host, port, *args, **fields)
        asked.append(host)
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return asked


def test_a_proxy_gets_an_ipv4_address_if_the_target_has_one(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many proxies have no route to IPv6 addresses, which the system may list first."""
    spec = read(tmp_path, f"http://both.example:{receiver.port}/healthy/both", "proxy: egress")
    resolves_to(monkeypatch, "2001:db8::1", "127.0.0.1")
    allowed = (*LOOPBACK, ip_network("2001:db8::/32"))
    with ConnectProxy() as proxy:
        [response] = send(spec, connection_of(proxy.port), allowed=allowed)

    assert response.code == 200
    assert [head.split()[1] for head in proxy.connects] == [f"127.0.0.1:{receiver.port}"]


def test_a_name_is_resolved_once_for_the_lifetime_of_connections(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow resolver does not hold up each push; after a minute the name is resolved again."""
    spec = read(tmp_path, f"http://once.example:{receiver.port}/healthy/once", "proxy: egress")
    asked = resolves_to(monkeypatch, "127.0.0.1")
    with ConnectProxy() as proxy:
        connection = connection_of(proxy.port)
        assert [send(spec, connection)[0].code for _ in range(3)] == [200] * 3
        assert asked == ["once.example"]

        monkeypatch.setattr("eventbridge.targets.http.egress.LIFETIME_SECONDS", 0.0)
        egress._addresses.clear()
        send(spec, connection)
        send(spec, connection)

    assert len(asked) == 3


def test_handles_are_reused_when_the_address_of_a_target_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONNECT names the new address, and no idle handle of the old one is left."""
    monkeypatch.setattr("eventbridge.targets.http.egress.LIFETIME_SECONDS", 0.0)
    made: list[Exchange] = []
    create = Exchange.__init__

    def counted(self: Exchange, *args: Any) -> None:
        made.append(self)
        create(self, *args)

    monkeypatch.setattr(Exchange, "__init__", counted)
    spec = read(tmp_path, "http://moves.example:9/x", "proxy: egress")
    with (
        ConnectProxy(502) as proxy,
        closing(open_target("big", spec, lambda _: connection_of(proxy.port), now, LOOPBACK)) as target,
    ):
        for last in range(1, 4):
            resolves_to(monkeypatch, f"127.0.0.{last}")
            list(target.deliver([a_request(0)], later()))

    assert [head.split()[1] for head in proxy.connects] == ["127.0.0.1:9", "127.0.0.2:9", "127.0.0.3:9"]
    assert len(made) == 1


def test_a_proxy_with_tls_is_verified_by_its_own_certificate_authority(receiver: Receiver, tmp_path: Path) -> None:
    """The extra `ca_certificate` of its connection counts for the proxy alone; without it the proxy is not trusted."""
    certificate = certificates.self_signed().write(tmp_path / "proxy.pem")
    spec = read(tmp_path, receiver.url("/healthy/secure"), "proxy: egress")
    with ConnectProxy(certificate=certificate) as proxy:
        found = [
            send(spec, connection_of(proxy.port, type="https", extra={"egress_proxy": True, **extra}))[0]
            for extra in ({"ca_certificate": str(certificate)}, {})
        ]

    assert [(each.code, each.error_class) for each in found] == [(200, None), (None, "ProxyFailed")]
    assert len(proxy.connects) == 1


def test_a_proxy_with_tls_is_verified_by_the_file_of_the_system(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE counts for proxies as for targets."""
    certificate = certificates.self_signed().write(tmp_path / "proxy.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    spec = read(tmp_path, receiver.url("/healthy/system"), "proxy: egress")
    with ConnectProxy(certificate=certificate) as proxy:
        [response] = send(spec, connection_of(proxy.port, type="https"))

    assert response.code == 200


def test_no_proxy_of_the_environment_bypasses_nothing(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request goes through the proxy, whatever `no_proxy` says."""
    monkeypatch.setenv("no_proxy", "*")
    with ConnectProxy() as proxy:
        send(read(tmp_path, receiver.url("/healthy/env"), "proxy: egress"), connection_of(proxy.port))

    assert len(proxy.connects) == 1


def test_a_name_that_cannot_be_resolved_here_is_not_sent_to_the_proxy(tmp_path: Path) -> None:
    """The proxy would resolve it unchecked."""
    with ConnectProxy() as proxy:
        [response] = send(read(tmp_path, "http://no-such-host.invalid/x", "proxy: egress"), connection_of(proxy.port))

    assert (response.error_class, proxy.connects) == ("HostUnknown", [])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"extra": {}}, "is not marked as a proxy"),
        ({"type": "aws"}, "requires a connection of type http"),
        ({"port": None}, "does not name the host and port of a proxy"),
        ({"host": ""}, "does not name the host and port of a proxy"),
        ({"host": "socks5://proxy.example"}, "does not name the host and port of a proxy"),
        ({"login": "a:b"}, "has a login with a colon"),
        (
            {"extra": {"egress_proxy": "true", "token": "pass-4711"}},
            "has an extra `token`, which a proxy does not use",
        ),
        ({"extra": {"egress_proxy": "true", "ca_certificate": "x"}}, "has an extra `ca_certificate`, which a proxy"),
    ],
)
def test_a_connection_that_is_no_proxy_is_refused(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    """Nothing is sent, and no secret is shown."""
    given = {"type": "http", "host": "127.0.0.1", "port": 3128, "password": "pass-4711"}
    given |= {"extra": {"egress_proxy": "true"}} | fields

    with pytest.raises(ConnectionUnusable, match=said) as caught:
        send(read(tmp_path, "http://127.0.0.1:9/x", "proxy: egress"), Connection("egress", **given))  # type: ignore[arg-type]

    assert "pass-4711" not in str(caught.value)
