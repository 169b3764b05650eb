"""Reads the TLS settings of a connection: CA certificates for the target's server, and the client certificate."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable

_PEM = "-----BEGIN "


@dataclass(frozen=True)
class Tls:
    """CA certificates and client certificate of a target, as PEM.

    If `ca_certificates` is None, the CA certificates in `system_file` apply, or libcurl's own if that is None too.
    `certificate` (with its chain) and `private_key` are given together or not at all.
    """

    system_file: Path | None = None
    ca_certificates: bytes | None = None
    certificate: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)


def tls_of(connection: Connection | None) -> Tls:
    """Return the TLS settings of a connection, from its extras.

    `ca_certificate`, `client_certificate` and `private_key` are PEM, or the path of a PEM file.
    Raises ConnectionUnusable, whose message shows no part of a key.
    """
    system_file = _system_file(os.environ.get("SSL_CERT_FILE"))
    if connection is None:
        return Tls(system_file)
    ca_certificates = _pem(connection, "ca_certificate")
    if ca_certificates is not None:
        _certificates(connection, "ca_certificate", ca_certificates)
    certificate, key = _pem(connection, "client_certificate"), _pem(connection, "private_key")
    if (certificate is None) != (key is None):
        missing = "private_key" if key is None else "client_certificate"
        raise _unusable(connection, f"has no extra `{missing}`: a client certificate needs its private key. Add it.")
    if certificate is None or key is None:
        if connection.extra.get("private_key_password"):
            raise _unusable(connection, "has an extra `private_key_password` and no `private_key`. Remove it.")
        return Tls(system_file, ca_certificates)
    return Tls(system_file, ca_certificates, certificate, _unlocked(connection, certificate, key))


@lru_cache(maxsize=1)
def _system_file(_named: str | None) -> Path | None:
    """Return the file of the system's CA certificates, looked up once.

    `_named`, the cache key, is the value of SSL_CERT_FILE, which may name the file.
    """
    found = ssl.get_default_verify_paths().cafile
    return Path(found) if found else None


def _pem(connection: Connection, name: str) -> bytes | None:
    value = connection.extra.get(name, "")
    if not isinstance(value, str):
        raise _unusable(connection, f"has an extra `{name}` that is not text. Write PEM, or a path, in quotes.")
    text = value.strip()
    if not text:
        return None
    if text.startswith(_PEM):
        return text.encode() + b"\n"
    if "\n" in text or len(text) > 4096:  # a key without its first line must not be shown as a path
        raise _unusable(
            connection,
            f"has an extra `{name}` that is neither PEM nor a path. Copy all of it, starting with -----BEGIN.",
        )
    try:
        return Path(text).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not a path"
        raise _unusable(
            connection,
            f"has an extra `{name}` whose file cannot be read: {why}. "
            "Name a file that exists on every worker, or write the PEM text itself.",
        ) from None


def _certificates(connection: Connection, name: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise _unusable(
            connection,
            f"has an extra `{name}` that contains no PEM certificate. Copy all of it, "
            "starting with -----BEGIN CERTIFICATE.",
        ) from None


def _unlocked(connection: Connection, certificate: bytes, pem: bytes) -> bytes:
    """Return the private key without a password, for libcurl's handshakes."""
    password = connection.extra.get("private_key_password") or None
    if password is not None and not isinstance(password, str):
        raise _unusable(connection, "has an extra `private_key_password` that is not text. Write it in quotes.")
    own = _certificates(connection, "client_certificate", certificate)[0]
    try:
        key = load_pem_private_key(pem, password.encode() if password else None)
    except TypeError:
        what = (
            "is locked: add `private_key_password`"
            if password is None
            else "has no password: remove `private_key_password`"
        )
        raise _unusable(connection, f"has an extra `private_key` that {what}.") from None
    except ValueError:  # its message does not help
        what = (
            "cannot be unlocked with `private_key_password`. Copy both"
            if password
            else "is not a PEM private key. Copy it"
        )
        raise _unusable(connection, f"has an extra `private_key` that {what} again.") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if own.public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        raise _unusable(
            connection,
            "has a `private_key` that does not match the first certificate in `client_certificate`. "
            "Put the client's own certificate first, and use its private key.",
        )
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _unusable(connection: Connection, problem: str) -> ConnectionUnusable:
    return ConnectionUnusable(f"Connection {connection.id!r} {problem}")
