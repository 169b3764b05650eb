"""What a connection lets an HTTP target prove: who sends (authorization) and that it was not changed (signature)."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from eventbridge.connection import Connection
from eventbridge.errors import ConnectionUnusable
from eventbridge.targets.signing import parse_secrets

# RFC 6750, 2.1, and what other issuers put into tokens: anything visible
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Credentials:
    """The value of `authorization`, if any, and the keys to sign with; never shown."""

    authorization: str | None = field(default=None, repr=False)
    signing_keys: tuple[bytes, ...] = field(default=(), repr=False)


def credentials_of(connection: Connection) -> Credentials:
    """Return what a connection holds: login and password (basic), or extra `token` (bearer); extra `signing_secret`.

    Raises ConnectionUnusable, which never shows a value.
    """
    keys = parse_secrets(connection.id, _text(connection, "signing_secret"))
    return Credentials(_authorization(connection), keys)


def _authorization(connection: Connection) -> str | None:
    token = _text(connection, "token")
    where = f"Connection {connection.id!r}"
    if token:
        if connection.login or connection.password:
            raise ConnectionUnusable(f"{where} has a login or password and an extra `token`. Keep one of the two.")
        if not _TOKEN.fullmatch(token):
            raise ConnectionUnusable(f"{where}: its extra `token` holds a space or control character. Copy it again.")
        return f"Bearer {token}"
    if not connection.login:
        if connection.password:
            raise ConnectionUnusable(f"{where} has a password and no login. Put a bearer token into extra `token`.")
        return None
    if ":" in connection.login:
        raise ConnectionUnusable(f"{where}: a login with a colon cannot be sent (RFC 7617). Use another login.")
    pair = f"{connection.login}:{connection.password}".encode()
    return f"Basic {base64.b64encode(pair).decode('ascii')}"


def _text(connection: Connection, name: str) -> str:
    value = connection.extra.get(name, "")
    if not isinstance(value, str):
        raise ConnectionUnusable(f"Connection {connection.id!r}: its extra `{name}` is not text. Write it in quotes.")
    return value.strip()
