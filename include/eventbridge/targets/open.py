"""Opens the target that a rule names; called by push for each target of a chunk."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from eventbridge import rule as rules
from eventbridge.connection import Connection
from eventbridge.errors import UserError
from eventbridge.targets.credentials import Credentials, credentials_of
from eventbridge.targets.exchange import Endpoint
from eventbridge.targets.file import FileTarget
from eventbridge.targets.http import HttpTarget
from eventbridge.targets.protocol import Target

_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")


def open_target(
    rule: str, target: rules.Target, connections: Callable[[str], Connection], clock: Callable[[], datetime]
) -> Target:
    """Return a target ready to deliver; `connections` is asked for its connection now, and again after 401 or 407.

    Raises UserError for a target that cannot be used as it is written (ConnectionUnusable for its connection);
    whether the target is there, only delivering shows.
    """
    if target.type == "file":
        return _open_file(rule, target, clock)
    return _open_http(rule, target, connections, clock)


def _open_file(rule: str, target: rules.Target, clock: Callable[[], datetime]) -> Target:
    if not target.path:
        raise _mistake(rule, target, "has no path", "Name a file, best by its absolute path")
    if target.content_mode == "binary":
        raise _mistake(
            rule, target, "has content_mode binary, and a file has no headers", "Use content_mode structured or data"
        )
    return FileTarget(Path(target.path), clock=clock)


def _open_http(
    rule: str, target: rules.Target, connections: Callable[[str], Connection], clock: Callable[[], datetime]
) -> Target:
    _check_url(rule, target)
    name = target.connection

    def credentials() -> Credentials:
        return Credentials() if name is None else credentials_of(connections(name))

    endpoint = Endpoint(target.url, target.timeout_seconds, target.allow_http, _authorities())
    return HttpTarget(endpoint, max_in_flight=target.max_in_flight, credentials=credentials, clock=clock)


def _check_url(rule: str, target: rules.Target) -> None:
    parts = _split(rule, target)
    if parts.scheme == "http" and not target.allow_http:
        raise _mistake(
            rule, target, "has an http:// url, which anyone on the way can read", "Use https:// or set allow_http: true"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _mistake(
            rule, target, f"has a url that is no https://host/path: {parts.scheme}://", "Write the whole URL"
        )
    if parts.username is not None or parts.password is not None:
        raise _mistake(rule, target, "has credentials in its url", "Put them into a connection")


def _split(rule: str, target: rules.Target) -> SplitResult:
    try:
        parts = urlsplit(target.url)
        _ = parts.port
    except ValueError as error:
        raise _mistake(rule, target, f"has a url that cannot be read ({error})", "Write https://host/path") from None
    if _NOT_IN_A_URL.search(target.url) or not target.url.isascii():
        raise _mistake(
            rule, target, "has a url with a space, control or non-ASCII character", "Escape it (%20), a host as xn--"
        )
    return parts


def _mistake(rule: str, target: rules.Target, what: str, remedy: str) -> UserError:
    return UserError(f"Target {target.name!r} of rule {rule!r} {what}. {remedy}.")


def _authorities() -> Path | None:
    """Return the system's file of certificate authorities, or the one that SSL_CERT_FILE names."""
    found = ssl.get_default_verify_paths().cafile
    return Path(found) if found else None
