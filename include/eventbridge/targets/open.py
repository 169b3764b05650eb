"""Opens the target that a rule names; called by push for each target of a chunk."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from eventbridge import rule as rules
from eventbridge.connection import Connection
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.targets.address import address_of, secrets_in
from eventbridge.targets.credentials import Credentials, credentials_of
from eventbridge.targets.exchange import Endpoint
from eventbridge.targets.file import FileTarget
from eventbridge.targets.http import HttpTarget
from eventbridge.targets.protocol import Target


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
    def connection() -> Connection | None:
        return None if target.connection is None else connections(target.connection)

    def renewed() -> Credentials:
        fresh = connection()
        if address_of(rule, target, fresh) != url:
            raise ConnectionUnusable(f"Connection {target.connection!r} has another URL now: the next push takes it.")
        return _credentials(fresh)

    first = connection()
    url = address_of(rule, target, first)
    secrets = () if target.url else secrets_in(url)
    endpoint = Endpoint(url, target.timeout_seconds, target.allow_http, _authorities(), secrets)
    return HttpTarget(
        endpoint, max_in_flight=target.max_in_flight, credentials=_credentials(first), renew=renewed, clock=clock
    )


def _credentials(connection: Connection | None) -> Credentials:
    return Credentials() if connection is None else credentials_of(connection)


def _mistake(rule: str, target: rules.Target, what: str, remedy: str) -> UserError:
    return UserError(f"Target {target.name!r} of rule {rule!r} {what}. {remedy}.")


def _authorities() -> Path | None:
    """Return the system's file of certificate authorities, or the one that SSL_CERT_FILE names."""
    found = ssl.get_default_verify_paths().cafile
    return Path(found) if found else None
