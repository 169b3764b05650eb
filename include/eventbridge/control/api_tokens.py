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


def create_token(
    runtime: Runtime, name: str, scopes: Sequence[str], expires_seconds: float | None, owners: Sequence[str] = ()
) -> tuple[ApiToken, str]:
    """Create a token and return it with its secret, of which the ledger stores only a hash.

    Each scope is `publish:<bus>`, `consume:<queue>`, one of them with `*`, `metrics`, `read`, `payloads` or `operate`.
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


def _check_scope(runtime: Runtime, scope: str) -> None:
    if scope in (METRICS, READ, PAYLOADS, OPERATE):
        return
    action, colon, name = scope.partition(":")
    if not colon or action not in _FINDERS:
        raise UserError(
            f"unknown scope {scope!r}. Write publish:<bus>, publish:{ANY_BUS} for every bus, consume:<queue>, "
            f"consume:{ANY_BUS} for every queue, {METRICS}, {READ}, {PAYLOADS}, or {OPERATE}"
        )
    if name != ANY_BUS:
        _FINDERS[action](runtime.rule_set(), name)
