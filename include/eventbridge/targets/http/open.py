"""Opens an http target with its connection's credentials, tokens and certificates."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.policy.batch_request import Limits
from eventbridge.targets.http.access import Access
from eventbridge.targets.http.address import address_of, secrets_in
from eventbridge.targets.http.batch_requests import BatchingHttpTarget
from eventbridge.targets.http.credentials import Credentials, credentials_of
from eventbridge.targets.http.egress import proxy_of
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.fields import PREFIXES, HttpFields
from eventbridge.targets.http.handshake import Handshake
from eventbridge.targets.http.headers import header_line
from eventbridge.targets.http.target import HttpTarget
from eventbridge.targets.http.tls import Tls, tls_of
from eventbridge.targets.http.tokens import TokenClient
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import Target
from eventbridge.targets.ssrf_guard import SsrfGuard


def open_http(opening: TargetSetup[HttpFields]) -> Target:
    """Return an http target. Raises UserError if it is unusable, ConnectionUnusable if its connection is."""
    target, clock = opening.target, opening.clock
    endpoint, access = endpoint_and_access(opening)
    if target.batch is not None:
        limits = Limits(target.batch.count, target.batch.size_bytes)
        return BatchingHttpTarget(
            endpoint, limits=limits, max_in_flight=target.max_in_flight, access=access, clock=clock
        )
    return HttpTarget(endpoint, max_in_flight=target.max_in_flight, access=access, clock=clock)


def endpoint_and_access(opening: TargetSetup[HttpFields]) -> tuple[Endpoint, Access]:
    """Return where an http target sends its requests, and the credentials for it. Raises as `open_http` does.

    The connection is read now, and again after a response 401 or 407.
    """
    rule, target, connections, clock = opening.rule, opening.target, opening.connections, opening.clock
    guard = SsrfGuard(opening.allow_addresses)
    first = None if target.connection is None else connections(target.connection)
    url, tls = address_of(rule, target, first), _tls_of(first)
    proxy = None
    if target.proxy is not None:
        proxy = proxy_of(connections(target.proxy), f"target {target.name!r} of rule {rule!r}")
    endpoint = Endpoint(
        url,
        target.timeout_seconds,
        target.allow_http,
        guard,
        tls,
        secrets=() if target.url else secrets_in(url),
        whole_responses=target.batch is not None,
        connect_seconds=target.connect_seconds,
        method=target.method,
        lines=tuple(header_line(name, value) for name, value in target.headers.items()),
        proxy=proxy,
        compresses=target.compression == "gzip",
        prefix=PREFIXES[target.signature_headers],
    )
    unread = [first]  # the first `read` returns the connection that was just read

    def read() -> Credentials:
        if target.connection is None:
            return Credentials()
        fresh = unread.pop() if unread else connections(target.connection)
        if fresh is None or (fresh is not first and address_of(rule, target, fresh) != url):
            raise ConnectionUnusable(
                f"Connection {target.connection!r} now has another URL, which the next push will use."
            )
        return _credentials(rule, target, fresh)

    def token_endpoint(client: TokenClient, seconds: float) -> Endpoint:
        timeout, wait = min(seconds, target.timeout_seconds), target.connect_seconds
        secrets, allowed = client.secrets, target.allow_http
        return Endpoint(client.url, timeout, allowed, guard, tls, secrets, connect_seconds=wait, proxy=proxy)

    handshake = None
    if target.handshake is not None:
        handshake = Handshake(endpoint, target.handshake, target.rate_per_second)
    return endpoint, Access(read, token_endpoint, clock, handshake)


@dataclass(frozen=True)
class _ConnectionSecrets:
    """Those parts of a connection that do not depend on the target that names the connection."""

    tls: Tls
    credentials: Credentials


#: Keyed by the `id()` of a live connection, because a push reads each connection once for all its targets.
_secrets_by_id: dict[int, _ConnectionSecrets] = {}


def _secrets_of(connection: Connection) -> _ConnectionSecrets:
    found = _secrets_by_id.get(id(connection))
    if found is None:
        found = _secrets_by_id[id(connection)] = _ConnectionSecrets(tls_of(connection), credentials_of(connection))
        weakref.finalize(connection, _secrets_by_id.pop, id(connection), None)
    return found


def _tls_of(connection: Connection | None) -> Tls:
    return tls_of(None) if connection is None else _secrets_of(connection).tls


def _credentials(rule: str, target: HttpFields, connection: Connection) -> Credentials:
    found = _secrets_of(connection).credentials
    if found.client is not None and found.client.url.startswith("http:") and not target.allow_http:
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: its extra `token_url` is http:, which anyone on the network path can read. "
            f"Use https:, or set allow_http: true for target {target.name!r} of rule {rule!r}."
        )
    twice = {_name_of(line) for line in found.lines} & {name.lower() for name in target.headers}
    if twice:
        raise UserError(
            f"Target {target.name!r} of rule {rule!r} sets the header {twice.pop()}, which its connection "
            f"{connection.id!r} sets too. Remove it from the headers of the target."
        )
    return found


def _name_of(line: str | bytes) -> str:
    text = line if isinstance(line, str) else line.decode()
    return text.partition(":")[0].lower()
