"""`targets check` of each type, a queue and a ledger report a server with an expired certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import certificates
import pytest
from demo.s3_server import ACCESS_KEY, SECRET_KEY
from pipeline.delivering import Sending, http

from eventbridge.clients.s3.access import S3Access
from eventbridge.control.try_target import check_target
from eventbridge.errors import BusError, EventBridgeError
from eventbridge.ledger import Ledger
from eventbridge.sources.sqs.queue import SqsQueue

#: What a PostgreSQL client says before it speaks TLS, and what response it got.
_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


@pytest.fixture
def trusted(tmp_path: Path) -> certificates.Pair:
    """A CA that clients trust."""
    return certificates.ca()


@pytest.fixture
def ca_file(trusted: certificates.Pair, tmp_path: Path) -> Path:
    """Its certificate."""
    (tmp_path / "ca.pem").write_bytes(trusted.certificate)
    return tmp_path / "ca.pem"


@pytest.fixture
def port(trusted: certificates.Pair, tmp_path: Path) -> Iterator[int]:
    """Where something speaks TLS, or PostgreSQL's beginning of it, with a certificate that ended yesterday."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.ended(trusted).write(tmp_path / "ended.pem"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, context), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def _serve(server: socket.socket, context: ssl.SSLContext) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            with client, suppress(OSError):
                client.settimeout(10)
                if client.recv(8, socket.MSG_PEEK) == _SSL_REQUEST:
                    client.recv(8)
                    client.sendall(b"S")
                with context.wrap_socket(client, server_side=True) as secure:
                    secure.recv(1)


@pytest.mark.parametrize("kind", ["http", "kafka", "rocketmq", "s3"])
def test_a_certificate_that_has_ended_is_reported(
    kind: str, sending: Sending, port: int, ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of the check; librdkafka does not say what is wrong with a certificate, so there it may be that."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(ca_file))
    file = quote(str(ca_file), safe="")
    keys = f"{quote(ACCESS_KEY, safe='')}:{quote(SECRET_KEY, safe='')}"
    endpoint = quote(f"https://127.0.0.1:{port}", safe="")
    sending.site.environ["EVENTBRIDGE_CONN_CRM"] = {
        "http": f"https://127.0.0.1:{port}/?ca_certificate={file}",
        "kafka": f"kafka://127.0.0.1:{port}/?security.protocol=SSL&ssl.ca.location={file}",
        "rocketmq": f"rocketmq://127.0.0.1:{port}/?ca_certificate={file}",
        "s3": f"aws://{keys}@/?region_name=us-east-1&endpoint_url={endpoint}",
    }[kind]
    sending.rules(
        crm={
            "http": http(f"https://127.0.0.1:{port}/x", connection="crm"),
            "kafka": "{type: kafka, connection: crm, topic: crm}",
            "rocketmq": "{type: rocketmq, connection: crm, topic: crm}",
            "s3": "{type: s3, connection: crm, bucket: tests}",
        }[kind]
    )

    said = "Renew the broker's certificate if it has expired" if kind == "kafka" else "certificate has expired"
    assert said in (check_target(sending.runtime, "orders", "crm") or "")


def test_a_queue_of_sqs_whose_certificate_has_ended_is_reported(
    port: int, ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is received, and the error names the reason and the field to correct."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(ca_file))
    access = S3Access("us-east-1", f"https://127.0.0.1:{port}", access_key=ACCESS_KEY, secret_key=SECRET_KEY)

    with (
        closing(SqsQueue(access, "orders", 30.0)) as queue,
        pytest.raises(BusError, match=r"certificate has expired.*Correct endpoint_url"),
    ):
        queue.receive(1)


def test_a_ledger_whose_certificate_has_ended_is_reported(port: int, ca_file: Path) -> None:
    """PostgreSQL: no stage begins, and the error names the reason."""
    url = f"postgresql://user:word@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert={ca_file}"

    with pytest.raises(EventBridgeError, match="certificate verify failed") as reported:
        Ledger.open(url)
    assert "word" not in str(reported.value)
