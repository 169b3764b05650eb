"""Where an HTTP target sends to: the rule file's url or, where the URL is a secret itself, its connection's."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.targets.http_fields import HttpFields
from eventbridge.targets.redaction import forms_of

_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")
_PORTS = {"http": 80, "https": 443}


def address_of(rule: str, target: HttpFields, connection: Connection | None) -> str:
    """Return the URL that a target's requests go to: the rule's, else the extra `secret_url` of its connection.

    Raises UserError (ConnectionUnusable for the connection) if there is none, are two, or it is not a URL to send to,
    and if the connection names a host that is not the URL's: its credentials are for nobody else.
    A message shows nothing of a connection's URL but its host.
    """
    secret = _secret_url(connection)
    if connection is not None and secret and target.url:
        what = f"has a url, and its connection {connection.id!r} an extra `secret_url`"
        raise _mistake(rule, target, what, "Keep one of the two")
    if connection is not None and not secret and not target.url:
        what = f"has no url, and its connection {connection.id!r} no extra `secret_url`"
        raise _mistake(rule, target, what, "Give one of them the whole URL, the connection if it is a secret")
    _check_url(rule, target, connection if secret else None, secret or target.url)
    if connection is not None and connection.host:
        _check_host(rule, target, connection, urlsplit(secret or target.url))
    return secret or target.url


def secrets_in(url: str) -> tuple[bytes, ...]:
    """Return the pieces of a secret URL that must not be shown, the longest first: path segments, query values."""
    parts = urlsplit(url)
    values = [each.partition("=")[2] or each for each in re.split("[&;]", parts.query)]
    return forms_of({form for piece in (*parts.path.split("/"), *values) for form in (piece, unquote(piece))})


def _secret_url(connection: Connection | None) -> str:
    url = "" if connection is None else connection.extra.get("secret_url", "")
    if connection is not None and not isinstance(url, str):
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: its extra `secret_url` is not text. Write it in quotes."
        )
    return str(url).strip()


def _check_url(rule: str, target: HttpFields, holder: Connection | None, url: str) -> None:
    """Refuse what cannot be sent to; `holder` is the connection that holds the URL, None if the rule file does."""
    parts = _split(rule, target, holder, url)
    if parts.scheme == "http" and not target.allow_http:
        what = "has an http:// url, which anyone on the way can read"
        raise _mistake(rule, target, what, "Use https:// or set allow_http: true", holder)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f": {parts.scheme}://" if holder is None else ""
        raise _mistake(rule, target, f"has a url that is not https://host/path{shown}", "Write the whole URL", holder)
    if parts.username is not None or parts.password is not None:
        what = "has credentials in its url"
        raise _mistake(rule, target, what, "Put them into the connection's login and password", holder)


def _split(rule: str, target: HttpFields, holder: Connection | None, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its message may quote what is secret
        what = "has a url that cannot be read (its host or port is malformed)"
        raise _mistake(rule, target, what, "Write https://host/path", holder) from None
    if _NOT_IN_A_URL.search(url) or not url.isascii():
        what = "has a url with a space, control or non-ASCII character"
        raise _mistake(rule, target, what, "Escape it (%20), a host as xn--", holder)
    return parts


def _check_host(rule: str, target: HttpFields, connection: Connection, url: SplitResult) -> None:
    """Refuse a URL of another host or port than the connection names, or of another scheme if it names one."""
    scheme, host, port = _place_of(connection)
    sent_to = (url.scheme, _folded(url.hostname or ""), url.port or _PORTS[url.scheme])
    own = (scheme or url.scheme, _folded(host), port or _PORTS.get(scheme or url.scheme))
    if sent_to != own:
        raise ConnectionUnusable(
            f"Target {target.name!r} of rule {rule!r} sends to {_shown(url.scheme, url.hostname, url.port)}, and its "
            f"connection {connection.id!r} is for {_shown(scheme, host, port)}. Correct one of the two, or leave host "
            "and port of the connection empty: then it goes wherever a rule file sends it."
        )


def _place_of(connection: Connection) -> tuple[str, str, int | None]:
    """Return scheme (empty where it says none), host and port that a connection names.

    The scheme is that of a host `https://...`; else Airflow's HTTP connections have it as schema.
    """
    scheme, separator, rest = connection.host.rpartition("://")
    if not separator and connection.schema.lower() in _PORTS:
        scheme = connection.schema
    elif not separator and connection.type == "https":
        scheme = "https"
    try:
        # an IPv6 address may stand there without its brackets
        parts = urlsplit(f"//[{rest}]" if rest.count(":") > 1 and "[" not in rest else f"//{rest}")
        host, port = parts.hostname, connection.port or parts.port
    except ValueError:  # its message may quote what is secret
        host, port = None, None
    if not host:
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: its host cannot be read. Write one such as crm.example or "
            "https://crm.example, and the port as port."
        )
    return scheme.lower(), host, port


def _folded(host: str) -> str:
    return host.lower().rstrip(".")


def _shown(scheme: str, host: str | None, port: int | None) -> str:
    name = f"[{host}]" if ":" in (host or "") else host
    return (f"{scheme}://" if scheme else "") + f"{name}" + (f":{port}" if port else "")


def _mistake(rule: str, target: HttpFields, what: str, remedy: str, holder: Connection | None = None) -> UserError:
    where = "" if holder is None else f", in the extra `secret_url` of its connection {holder.id!r}"
    kind = UserError if holder is None else ConnectionUnusable
    return kind(f"Target {target.name!r} of rule {rule!r} {what}{where}. {remedy}.")
