"""Reads the credentials and signing keys of an HTTP target from its connection."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final
from urllib.parse import quote, urlsplit

from eventbridge.config.connection import Connection
from eventbridge.config.redaction import SHORTEST_MASKED, SecretForm, forms_of
from eventbridge.errors import ConnectionUnusable
from eventbridge.similar_names import similar
from eventbridge.targets.http.header_names import is_reserved
from eventbridge.targets.http.headers import (
    HeaderRefused,
    Signer,
    SigningKey,
    header_line,
    parse_secrets,
)
from eventbridge.targets.http.tokens import TokenClient

# more than RFC 6750, 2.1, allows, because some issuers put any visible character into tokens
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_DEFAULT_API_KEY_HEADER = "x-api-key"
#: The `client_secret_in` of a connection whose `token_url` is the login of an Airflow (POST /auth/token).
AIRFLOW_LOGIN: Final = "airflow_login"

#: All extras of a connection that an http target reads, here or for its URL and TLS.
EXTRAS = frozenset(
    {
        "any_host",
        "api_key",
        "api_key_header",
        "api_key_query",
        "audience",
        "ca_certificate",
        "client_certificate",
        "client_secret_in",
        "private_key",
        "private_key_password",
        "scope",
        "secret_url",
        "signing_secret",
        "token",
        "token_url",
    }
)


@dataclass(frozen=True)
class Credentials:
    """The header lines and the query (`name=value`) to send, and the signing keys; its repr shows none of them.

    `client` is the OAuth2 client for an access token, which `with_token` adds. `secrets` are the values to remove from
    responses before they are stored.
    """

    lines: tuple[str | bytes, ...] = field(default=(), repr=False)
    query: str = field(default="", repr=False)
    signing_keys: tuple[SigningKey, ...] = field(default=(), repr=False)
    client: TokenClient | None = None
    secrets: tuple[SecretForm, ...] = field(default=(), repr=False)

    @cached_property
    def signer(self) -> Signer | None:
        """Return the signer with these keys, or None without keys; all targets with these credentials share it."""
        return Signer(self.signing_keys) if self.signing_keys else None

    def with_token(self, token: str) -> Credentials:
        """Return the same credentials with a bearer token."""
        forms = forms_of([token])
        for form in forms:
            form.prepare()  # compiled here, because no delivery waits at this point
        return replace(self, lines=(*self.lines, _bearer(token)), secrets=(*forms, *self.secrets))


NO_CREDENTIALS = Credentials()


def credentials_of(connection: Connection) -> Credentials:
    """Return the credentials of a connection.

    A connection may have one of these: login and password (basic), extra `token` (bearer), extra `api_key` (header or
    query), extra `token_url` with login and password (OAuth2 client credentials). Any connection may also have a
    `signing_secret` extra. Raises ConnectionUnusable, whose message never shows a value.
    """
    signing = _text(connection, "signing_secret")
    keys = parse_secrets(connection.id, signing)
    ways = [name for name in ("token", "api_key", "token_url") if _text(connection, name)]
    if len(ways) > 1:
        raise _unusable(connection, f"has the extras `{ways[0]}` and `{ways[1]}`. Keep one of the two")
    way = ways[0] if ways else ""
    if way in ("token", "api_key") and (connection.login or connection.password):
        raise _unusable(connection, f"has a login or password and an extra `{way}`. Keep one of the two")
    _refuse_strays(connection, way)
    if way == "token":
        found = _token_credentials(connection)
    elif way == "api_key":
        found = _api_key_credentials(connection)
    elif way == "token_url":
        found = _client_credentials(connection)
    else:
        found = _login_credentials(connection)
    # a response that shows the receiver's settings contains its copy of a key, with or without the prefix
    texts = [each.partition("_")[2].rstrip("=") for each in signing.split()]
    return replace(found, signing_keys=keys, secrets=(*found.secrets, *forms_of(texts)))


def _refuse_strays(connection: Connection, way: str) -> None:
    """Reject an extra that would have no effect because its name is misspelled or its counterpart is missing.

    Unrelated extras are ignored, because other programs may use the connection too.
    """
    for name in sorted(set(connection.extra) - EXTRAS):
        near = similar(name.lower(), EXTRAS, cutoff=0.85)
        if near:
            raise _unusable(connection, f"has an unknown extra `{name}`. Write `{near[0]}`, or remove it")
    belongs = {"api_key": ("api_key_header", "api_key_query"), "token_url": ("scope", "audience", "client_secret_in")}
    for owner, names in belongs.items():
        for name in names:
            if _text(connection, name) and way != owner:
                raise _unusable(
                    connection, f"has an extra `{name}` but no `{owner}`. Add `{owner}`, or remove `{name}`"
                )


def _token_credentials(connection: Connection) -> Credentials:
    token = _text(connection, "token")
    if not _VISIBLE.fullmatch(token):
        raise _unusable(connection, "has an extra `token` with a space or control character. Copy it again")
    return Credentials((_bearer(token),), secrets=forms_of([token]))


def _api_key_credentials(connection: Connection) -> Credentials:
    key, name, parameter = (_text(connection, each) for each in ("api_key", "api_key_header", "api_key_query"))
    if name and parameter:
        raise _unusable(connection, "has the extras `api_key_header` and `api_key_query`. Keep one of the two")
    if parameter:
        escaped = quote(key, safe="")
        secrets = forms_of([key, escaped])  # a server may repeat the value in base64
        return Credentials(query=f"{quote(parameter, safe='')}={escaped}", secrets=secrets)
    name = name or _DEFAULT_API_KEY_HEADER
    if is_reserved(name) and name.lower() != "authorization":
        raise _unusable(connection, f"has the `api_key_header` {name!r}, which is reserved. Name another header")
    try:
        line = header_line(name, key)
    except HeaderRefused:
        what = (
            "has an `api_key_header` that is not a header name, or an `api_key` with a line break or control character"
        )
        raise _unusable(connection, f"{what}. Copy them again") from None
    return Credentials((line,), secrets=forms_of([key, key.rpartition(" ")[2]]))  # for `ApiKey 123`, also 123


def _client_credentials(connection: Connection) -> Credentials:
    url, secret_in = _text(connection, "token_url"), _text(connection, "client_secret_in") or "header"
    if not connection.login or not connection.password:
        what = "has an extra `token_url`, but no login (the client id) or no password (the client secret)"
        raise _unusable(connection, f"{what}. Add what is missing")
    if secret_in not in ("header", "body", AIRFLOW_LOGIN):
        raise _unusable(
            connection, "has an extra `client_secret_in` that is neither header nor body. Write header or body"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its message may quote a secret
        parts = urlsplit("")
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or not _VISIBLE.fullmatch(url)
        or "@" in parts.netloc
    ):
        what = "has an extra `token_url` that is not https://host/path, or contains a login"
        raise _unusable(connection, f"{what}. Write the whole URL, without a login")
    client = TokenClient(
        connection=connection.id,
        url=url,
        client_id=connection.login,
        client_secret=connection.password,
        scope=_text(connection, "scope"),
        audience=_text(connection, "audience"),
        secret_in_body=secret_in == "body",
        airflow_login=secret_in == AIRFLOW_LOGIN,
    )
    return Credentials(client=client, secrets=client.secrets)


def _login_credentials(connection: Connection) -> Credentials:
    if not connection.login:
        if connection.password:
            raise _unusable(connection, "has a password but no login. Put a bearer token into the extra `token`")
        return Credentials()
    if ":" in connection.login:
        raise _unusable(connection, "has a login with a colon, which cannot be sent (RFC 7617). Use another login")
    pair = f"{connection.login}:{connection.password}"
    encoded = base64.b64encode(pair.encode()).decode("ascii")
    secrets = [encoded, pair, connection.password]
    if len(connection.password) < SHORTEST_MASKED:
        secrets.append(connection.login)  # some services accept an API key as the login, with an empty password or `X`
    return Credentials((f"authorization: Basic {encoded}",), secrets=forms_of(secrets))


def _bearer(token: str) -> str:
    return f"authorization: Bearer {token}"


def _text(connection: Connection, name: str) -> str:
    value = connection.extra.get(name, "")
    if not isinstance(value, str):
        raise _unusable(connection, f"has an extra `{name}` that is not text. Write it in quotes")
    return value.strip()


def _unusable(connection: Connection, problem: str) -> ConnectionUnusable:
    return ConnectionUnusable(f"Connection {connection.id!r} {problem}.")
