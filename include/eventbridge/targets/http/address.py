"""Returns the URL of an HTTP target from the rule file or, if the URL itself is a secret, from its connection."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from eventbridge.config.connection import HTTP_TYPES, Connection, require_type
from eventbridge.config.redaction import SHORTEST_MASKED, SecretForm, forms_of
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.targets.http.fields import HttpFields

_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")
_PORTS = {"http": 80, "https": 443}
#: Allows only characters that Python's parser, which compares URLs, and libcurl's, which sends requests, read alike.
_NETLOC = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?", re.ASCII)


#: The connection with EventBridge's own login for Airflow's API (`airflow.airflow_api`), of type http, which rule files
#: must not use.
_AIRFLOW: Final = "eventbridge_airflow"


def address_of(rule: str, target: HttpFields, connection: Connection | None) -> str:
    """Return the URL of a target's requests: the rule's, else the `secret_url` extra of its connection.

    Raises UserError if there is no URL, or two, or an invalid one. Raises ConnectionUnusable if the connection has a
    type that is not for http targets, or is for another scheme, host or port. Messages show no more of a connection's
    URL than scheme, host and port.
    """
    if connection is not None:
        _check_connection(rule, target, connection)
    secret = _secret_url(connection)
    if connection is not None and secret and target.url:
        what = f"has a url, and its connection {connection.id!r} has an extra `secret_url`"
        raise _error(rule, target, what, "Keep one of the two")
    if connection is not None and not secret and not target.url:
        what = f"has no url, and its connection {connection.id!r} has no extra `secret_url`"
        raise _error(rule, target, what, "Put the whole URL into one of them: into the connection if it is a secret")
    url = secret or target.url
    parts = _check_url(rule, target, connection if secret else None, url)
    if connection is not None:
        _check_host(rule, target, connection, parts)
    return url


def secrets_in(url: str) -> tuple[SecretForm, ...]:
    """Return the secret parts of a secret URL: its path with the query, path segments, query values.

    A segment or value of fewer than six characters, such as `v1`, is a secret only if the URL has no longer part.
    """
    parts = urlsplit(url)
    values = [each.partition("=")[2] or each for each in re.split("[&;]", parts.query)]
    pieces = {form for piece in (*parts.path.split("/"), *values) for form in (piece, unquote(piece))}
    whole = f"{parts.path}?{parts.query}" if parts.query else parts.path
    long = {piece for piece in pieces if len(piece) >= SHORTEST_MASKED}
    return forms_of({whole if whole != "/" else "", *(long or pieces)})


def _secret_url(connection: Connection | None) -> str:
    url = "" if connection is None else connection.extra.get("secret_url", "")
    if connection is not None and not isinstance(url, str):
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: its extra `secret_url` is not text. Write it in quotes."
        )
    return str(url).strip()


def _check_connection(rule: str, target: HttpFields, connection: Connection) -> None:
    """Reject a connection whose secrets are not for http targets."""
    if connection.id == _AIRFLOW:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} is EventBridge's own connection to Airflow's API. "
            f"Name another connection in target {target.name!r} of rule {rule!r}."
        )
    require_type(connection, HTTP_TYPES, f"target {target.name!r} of rule {rule!r}")


def _check_url(rule: str, target: HttpFields, holder: Connection | None, url: str) -> SplitResult:
    """Return the parts of a valid URL; `holder` is the connection that has it, or None if the rule file has it."""
    parts = _split(rule, target, holder, url)
    if parts.scheme == "http" and not target.allow_http:
        what = "has an http:// url, which anyone on the network path can read"
        raise _error(rule, target, what, "Use https:// or set allow_http: true", holder)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f": {parts.scheme}://" if holder is None else ""
        raise _error(rule, target, f"has a url that is not https://host/path{shown}", "Write the whole URL", holder)
    if parts.username is not None or parts.password is not None:
        what = "has credentials in its url"
        raise _error(rule, target, what, "Put them into the connection's login and password", holder)
    if not _NETLOC.fullmatch(parts.netloc):
        what = "has a url whose host is not a name or an IP address"
        raise _error(rule, target, what, "Write https://host/path", holder)
    return parts


def _split(rule: str, target: HttpFields, holder: Connection | None, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its message may quote a secret
        what = "has a url that cannot be read (its host or port is malformed)"
        raise _error(rule, target, what, "Write https://host/path", holder) from None
    if _NOT_IN_A_URL.search(url) or not url.isascii():
        what = "has a url with a space, a control character or a non-ASCII character"
        raise _error(rule, target, what, "Escape it, a space as %20, a host name as xn--...", holder)
    return parts


def _check_host(rule: str, target: HttpFields, connection: Connection, url: SplitResult) -> None:
    """Reject a URL with another scheme, host or port than the connection's."""
    sent_to = _format_origin(url.scheme, url.hostname, url.port)
    sends = f"target {target.name!r} of rule {rule!r} sends to {sent_to}"
    origin = origin_of(connection, sent_to, f", and {sends}")
    if origin is None:
        return
    scheme, host, port = origin
    own = (scheme, _folded(host), port or _PORTS.get(scheme))
    if own != (url.scheme, _folded(url.hostname or ""), url.port or _PORTS[url.scheme]):
        its_origin = _format_origin(scheme, host, port)
        raise ConnectionUnusable(
            f"Connection {connection.id!r} of type {connection.type!r} is for {its_origin}, and {sends}. "
            f"{_scheme_remedy(url, scheme)}"
        )


def _scheme_remedy(url: SplitResult, scheme: str) -> str:
    if url.scheme == "http" and scheme == "https":
        return (
            "For plain HTTP, give the connection the host with its scheme, in JSON as "
            f'"host": "http://{url.netloc}", or write its URI with the schema: http://{url.netloc}/http. '
            "In a URI, what stands before :// is the type of the connection."
        )
    return "Correct the url in the rule file, or the host of the connection. Include the scheme: the default is https."


def origin_of(
    connection: Connection, example: str = "https://crm.example", use: str = ""
) -> tuple[str, str, int | None] | None:
    """Return the scheme, host and port that a connection is for; the port is None if the connection names none.

    The result is None for a connection that is only for its own URL, and for one with the `any_host` extra, which is
    for every host in rule files. Raises ConnectionUnusable; if the connection names no host, the message contains `use`
    and suggests the host `example`.

    As in Airflow's HTTP connections, the scheme is that of the host (`https://...`), else the `schema` field. The
    default is https, so that no rule file can send credentials in clear text unless the connection says http.
    """
    any_host, holds_url = _is_for_any_host(connection), bool(_secret_url(connection))
    if any_host and (connection.host or holds_url):
        other = "a host" if connection.host else "an extra `secret_url`"
        raise ConnectionUnusable(
            f"Connection {connection.id!r} has {other} and an extra `any_host`: it is for one host or for all. "
            "Remove one of the two."
        )
    if not connection.host and not any_host and not holds_url:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} of type {connection.type!r} names no host{use}. Give it the host {example}; "
            "or, if you trust everyone who may write rule files with its credentials, set its extra `any_host` to true."
        )
    if not connection.host:
        return None
    scheme, separator, rest = connection.host.rpartition("://")
    if not separator and connection.schema.lower() in _PORTS:
        scheme = connection.schema
    elif not separator:
        scheme = "https"
    try:
        # an IPv6 address may be written without brackets
        parts = urlsplit(f"//[{rest}]" if rest.count(":") > 1 and "[" not in rest else f"//{rest}")
        host, port = parts.hostname, connection.port or parts.port
    except ValueError:  # its message may quote a secret
        host, port = None, None
    if not host:
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: its host cannot be read. Write one such as crm.example or "
            "https://crm.example, and put the port into the field port."
        )
    return scheme.lower(), host, port


def _is_for_any_host(connection: Connection) -> bool:
    value = str(connection.extra.get("any_host", False)).lower()  # in a connection URI it is a string
    if value not in ("true", "false"):
        raise ConnectionUnusable(
            f"Connection {connection.id!r} has an extra `any_host` that is neither true nor false. Write true or false."
        )
    return value == "true"


def _folded(host: str) -> str:
    return host.lower().rstrip(".")


def _format_origin(scheme: str, host: str | None, port: int | None) -> str:
    name = f"[{host}]" if ":" in (host or "") else host
    return (f"{scheme}://" if scheme else "") + f"{name}" + (f":{port}" if port else "")


def _error(rule: str, target: HttpFields, problem: str, remedy: str, holder: Connection | None = None) -> UserError:
    where = "" if holder is None else f", in the extra `secret_url` of its connection {holder.id!r}"
    kind = UserError if holder is None else ConnectionUnusable
    return kind(f"Target {target.name!r} of rule {rule!r} {problem}{where}. {remedy}.")
