"""Certificates made for one test: CAs, and what they vouch for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

#: What a receiver is reached by.
LOCALHOST = x509.IPAddress(ip_address("127.0.0.1"))


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: ec.EllipticCurvePrivateKey

    def private(self, password: str = "") -> bytes:
        """Return the key in PEM, locked if there is a password."""
        lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)

    def write(self, file: Path) -> Path:
        """Write key and certificate into one file, as a receiver takes them."""
        file.write_bytes(self.private() + self.certificate)
        return file


def self_signed(name: x509.GeneralName = LOCALHOST) -> Pair:
    """Return a new self-signed certificate for one name, which no CA vouches for."""
    return _made("receiver", name, None)


def ca(called: str = "ca") -> Pair:
    """Return a CA of a name."""
    return _made(called, None, None)


def vouched_for(by: Pair, name: x509.GeneralName = LOCALHOST) -> Pair:
    """Return a certificate for one name that a CA vouches for."""
    return _made("vouched for", name, by)


def ended(by: Pair, name: x509.GeneralName = LOCALHOST) -> Pair:
    """Return the same, but it was good until yesterday."""
    return _made("ended", name, by, from_now=timedelta(days=-1))


def _made(called: str, name: x509.GeneralName | None, by: Pair | None, from_now: timedelta = timedelta(days=1)) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    issuer = subject if by is None else x509.load_pem_x509_certificate(by.certificate).subject
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + min(from_now, timedelta()) - timedelta(minutes=5))
        .not_valid_after(now + from_now)
    )
    if name is None:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    signed = builder.sign(key if by is None else by.key, hashes.SHA256())
    return Pair(signed.public_bytes(Encoding.PEM), key)
