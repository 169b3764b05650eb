"""TLS of the HTTP target: only a server whose certificate is trusted and bears its name is delivered to."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eventbridge.delivery import Answer
from eventbridge.rule import Target as TargetRule
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request
from eventbridge.testing.receiver import Receiver


def self_signed(file: Path, name: x509.GeneralName) -> Path:
    """Write a PEM file of a new key and a certificate for one name, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate for the receiver's own address."""
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return self_signed(tmp_path_factory.mktemp("certificate") / "own.pem", address)


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Receiver]:
    """Run a receiver that speaks TLS with that certificate."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "log.jsonl", certificate=certificate) as running:
        yield running


def answer_of(url: str) -> Answer:
    def no_connection(connection_id: str) -> None:
        raise AssertionError(f"nobody asked for {connection_id}")

    rule = TargetRule(name="crm", type="http", url=url, timeout_seconds=5.0)
    target = open_target("r", rule, no_connection, lambda: datetime.now(UTC))  # type: ignore[arg-type]
    with closing(target):
        request = Request(0, str(uuid.uuid4()), b"{}", "application/json")
        [(_, answer)] = target.deliver([request], datetime.now(UTC) + timedelta(seconds=30))
        return answer


def test_a_self_signed_server_is_refused(receiver: Receiver) -> None:
    """Nothing is sent to a server that nobody vouches for."""
    answer = answer_of(receiver.url("/healthy/unknown"))

    assert (answer.accepted, answer.code, answer.error_class) == (False, None, "TlsError")
    assert [request for request in receiver.requests() if request["path"] == "/healthy/unknown"] == []


def test_a_trusted_server_is_delivered_to(
    receiver: Receiver, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An authority of one's own is trusted by SSL_CERT_FILE."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    assert answer_of(receiver.url("/healthy/trusted")).accepted


def test_a_trusted_server_of_another_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate counts for the names in it alone."""
    other = self_signed(tmp_path / "other.pem", x509.DNSName("crm.example"))
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with Receiver(tmp_path / "log.jsonl", certificate=other) as receiver:
        answer = answer_of(receiver.url("/healthy"))

    assert (answer.accepted, answer.code, answer.error_class) == (False, None, "TlsError")


def test_a_server_without_tls_is_refused(tmp_path: Path) -> None:
    """https:// to a server that speaks plain HTTP is a TlsError, and nothing was sent in the clear."""
    with Receiver(tmp_path / "log.jsonl") as receiver:
        answer = answer_of(receiver.url("/healthy").replace("http://", "https://"))
        received = receiver.requests()

    assert (answer.accepted, answer.code, answer.error_class) == (False, None, "TlsError")
    assert received == []
