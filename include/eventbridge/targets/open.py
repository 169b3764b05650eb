"""Opens the target that a rule names; called by push for each target of a chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from eventbridge import rule as rules
from eventbridge.bundle import Limits
from eventbridge.connection import Connection
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.targets.access import Access
from eventbridge.targets.address import address_of, secrets_in
from eventbridge.targets.credentials import Credentials, credentials_of
from eventbridge.targets.endpoint import Endpoint
from eventbridge.targets.file import FileTarget
from eventbridge.targets.guard import AddressGuard, Network
from eventbridge.targets.http import HttpTarget
from eventbridge.targets.http_bundles import BundlingHttpTarget
from eventbridge.targets.protocol import Target
from eventbridge.targets.tls import tls_of
from eventbridge.targets.tokens import TokenClient


def open_target(
    rule: str,
    target: rules.Target,
    connections: Callable[[str], Connection],
    clock: Callable[[], datetime],
    allow_addresses: Sequence[Network] = (),
) -> Target:
    """Return a target ready to deliver; `connections` is asked for its connection now, and again after 401 or 407.

    An http target connects to public addresses and to those in `allow_addresses`.
    Raises UserError for a target that cannot be used as it is written (ConnectionUnusable for its connection);
    whether the target is there, only delivering shows.
    """
    if target.type == "file":
        return _open_file(rule, target, clock)
    return _open_http(rule, target, connections, clock, AddressGuard(allow_addresses))


def _open_file(rule: str, target: rules.Target, clock: Callable[[], datetime]) -> Target:
    if not target.path:
        raise _mistake(rule, target, "has no path", "Name a file, best by its absolute path")
    if target.content_mode == "binary":
        raise _mistake(
            rule, target, "has content_mode binary, and a file has no headers", "Use content_mode structured or data"
        )
    return FileTarget(Path(target.path), clock=clock)


def _open_http(
    rule: str,
    target: rules.Target,
    connections: Callable[[str], Connection],
    clock: Callable[[], datetime],
    guard: AddressGuard,
) -> Target:
    first = None if target.connection is None else connections(target.connection)
    url, tls = address_of(rule, target, first), tls_of(first)
    endpoint = Endpoint(
        url,
        target.timeout_seconds,
        target.allow_http,
        guard,
        tls,
        secrets=() if target.url else secrets_in(url),
        whole_answers=target.batch is not None,
        connect_seconds=target.connect_seconds,
    )
    unread = [first]  # its first reading is that of this very moment

    def read() -> Credentials:
        if target.connection is None:
            return Credentials()
        fresh = unread.pop() if unread else connections(target.connection)
        if fresh is None or address_of(rule, target, fresh) != url:
            raise ConnectionUnusable(f"Connection {target.connection!r} has another URL now: the next push takes it.")
        return _credentials(rule, target, fresh)

    def token_endpoint(client: TokenClient, seconds: float) -> Endpoint:
        timeout, wait = min(seconds, target.timeout_seconds), target.connect_seconds
        return Endpoint(client.url, timeout, target.allow_http, guard, tls, client.secrets, connect_seconds=wait)

    access = Access(read, token_endpoint, clock)
    if target.batch is not None:
        limits = Limits(target.batch.count, target.batch.size_bytes)
        return BundlingHttpTarget(
            endpoint, limits=limits, max_in_flight=target.max_in_flight, access=access, clock=clock
        )
    return HttpTarget(endpoint, max_in_flight=target.max_in_flight, access=access, clock=clock)


def _credentials(rule: str, target: rules.Target, connection: Connection) -> Credentials:
    found = credentials_of(connection)
    if found.client is not None and found.client.url.startswith("http:") and not target.allow_http:
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: its extra `token_url` is http:, which anyone on the way can read. "
            f"Use https:, or set allow_http: true for target {target.name!r} of rule {rule!r}."
        )
    return found


def _mistake(rule: str, target: rules.Target, what: str, remedy: str) -> UserError:
    return UserError(f"Target {target.name!r} of rule {rule!r} {what}. {remedy}.")
