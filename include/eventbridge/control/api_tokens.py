"""Creates, revokes and checks the tokens that programs use to call the API."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from eventbridge.errors import NotFoundError, UserError
from eventbridge.model.api import (
    ANY_BUS,
    CONSUME,
    METRICS,
    OPERATE,
    OWNER,
    PAYLOADS,
    PORTAL,
    PUBLISH,
    READ,
    TOKEN_PREFIX,
    ApiToken,
)
from eventbridge.rules import RuleSet
from eventbridge.rules.fields import NAME, NAME_REMEDY
from eventbridge.rules.find import find_bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.similar_names import suggest
from eventbridge.targets.queue.fields import find_queue

#: The actions on something with a name, and the functions that find it.
_FINDERS: Final[Mapping[str, Callable[[RuleSet, str], object]]] = {PUBLISH: find_bus, CONSUME: find_queue}
_BYTES = 32
#: The scopes that a link to the portal may have beside `portal`; without any, it shows all but payloads.
_OF_PORTAL: Final = frozenset({PAYLOADS, OPERATE})
#: The path, below the URL of the server, of the page that exchanges a link's token for a session. The token is the
#: fragment of the link, which browsers send to no server.
PORTAL_PATH: Final = "/portal/page/open"


def create_token(
    runtime: Runtime, name: str, scopes: Sequence[str], expires_seconds: float | None, owners: Sequence[str] = ()
) -> tuple[ApiToken, str]:
    """Create a token and return it with its secret, of which the ledger stores only a hash.

    Each scope is `publish:<bus>`, `consume:<queue>`, one of them with `*`, `metrics`, `read`, `payloads` or `operate`.
    A token with `portal` opens the portal of its one owner, and must expire; see `portal_link`.
    The token is limited to the rules and buses of `owners`, which the rules must name; without any, it is not limited.
    If `expires_seconds` is None, it never expires. Raises UserError if the name is invalid or was used before, and if a
    scope or owner is invalid.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r} is not a valid name for a token. {NAME_REMEDY}")
    if not scopes:
        raise UserError("a token without a scope allows nothing. Give at least one, such as publish:orders")
    for scope in scopes:
        _check_scope(runtime, scope)
    _check_owners(runtime, owners, scopes)
    if PORTAL in scopes:
        _check_portal(owners, scopes, expires_seconds)
    now = runtime.clock()
    expires_at = None if expires_seconds is None else now + timedelta(seconds=expires_seconds)
    limits = (f"{OWNER}{owner}" for owner in owners)
    token = ApiToken(name, tuple(dict.fromkeys([*scopes, *limits])), now, expires_at)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(_BYTES)
    if not runtime.ledger.tokens.add(token, hash_of(secret)):
        raise UserError(
            f"a token {name!r} exists or has existed. Choose another name, which distinguishes the calls of both"
        )
    return token, secret


def create_portal_token(
    runtime: Runtime, name: str, scopes: Sequence[str], expires_seconds: float | None, owners: Sequence[str]
) -> tuple[ApiToken, str]:
    """Create a token that opens the portal of one owner, and return it with the link that contains it.

    If `name` is empty, the token is named after the owner. `scopes` are `payloads` and `operate`, or none. Raises the
    errors of `create_token`.
    """
    name = name or "-".join(["portal", *owners[:1], secrets.token_hex(3)])
    token, secret = create_token(runtime, name, [PORTAL, *scopes], expires_seconds, owners)
    return token, portal_link(runtime, secret)


def portal_link(runtime: Runtime, secret: str) -> str:
    """Return the link that opens the portal with a token."""
    return f"{runtime.settings.portal_url}{PORTAL_PATH}#{secret}"


def revoke_token(runtime: Runtime, name: str) -> bool:
    """Revoke a token. Return False if it has already been revoked.

    Raises NotFoundError, which suggests a similar name, if there is no such token.
    """
    if runtime.ledger.tokens.revoke(name):
        return True
    find_token(runtime, name)
    return False


def find_token(runtime: Runtime, name: str) -> ApiToken:
    """Return the token with the given name. Raises NotFoundError with the nearest name."""
    tokens = {token.name: token for token in runtime.ledger.tokens.all()}
    if name not in tokens:
        raise NotFoundError(f"there is no token {name!r}. {suggest('Tokens', name, tokens)}")
    return tokens[name]


def valid_token(runtime: Runtime, secret: str) -> ApiToken | None:
    """Return the token with this secret, or None if it is unknown, revoked or expired."""
    if not secret.startswith(TOKEN_PREFIX):
        return None
    token = runtime.ledger.tokens.get(hash_of(secret))
    return token if token is not None and token.is_valid(runtime.clock()) else None


def hash_of(secret: str) -> str:
    """Return the hash that the ledger stores for a token. A fast hash is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _check_owners(runtime: Runtime, owners: Sequence[str], scopes: Sequence[str]) -> None:
    if not owners:
        return
    if METRICS in scopes:
        raise UserError(f"the scope {METRICS} shows the rules of every owner. Create a separate token for it")
    known = runtime.rule_set().owners()
    for owner in owners:
        if owner not in known:
            remedy = suggest("Owners", owner, known)
            raise UserError(f"no rule file names an owner {owner!r}. {remedy}")


def _check_portal(owners: Sequence[str], scopes: Sequence[str], expires_seconds: float | None) -> None:
    """Raise UserError unless a token for the portal has one owner, an end, and no scope of a program."""
    if len(owners) != 1:
        raise UserError("the portal shows the rules of one owner. Give exactly one owner, such as --owner shop")
    if expires_seconds is None:
        raise UserError("a link to the portal is valid for a limited time. Give the time, such as --ttl 7d")
    for scope in scopes:
        if scope != PORTAL and scope not in _OF_PORTAL:
            raise UserError(
                f"a link to the portal cannot have the scope {scope}. It is read-only without a scope; "
                f"{PAYLOADS} shows payloads, and {OPERATE} allows changes. Create a separate token for a program"
            )


def _check_scope(runtime: Runtime, scope: str) -> None:
    if scope in (METRICS, READ, PAYLOADS, OPERATE, PORTAL):
        return
    action, colon, name = scope.partition(":")
    if not colon or action not in _FINDERS:
        raise UserError(
            f"unknown scope {scope!r}. Write publish:<bus>, publish:{ANY_BUS} for every bus, consume:<queue>, "
            f"consume:{ANY_BUS} for every queue, {METRICS}, {READ}, {PAYLOADS}, or {OPERATE}"
        )
    if name != ANY_BUS:
        _FINDERS[action](runtime.rule_set(), name)
