"""Defines the tokens, stored responses and recorded calls of the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

#: The prefix of the path of every call except `/health`, `/metrics` and the page. A change that breaks callers gets
#: another prefix.
V1: Final = "/v1"

#: The prefix of every token, by which secret scanners recognise it in source code.
TOKEN_PREFIX: Final = "ebt_"

#: The action of publishing to a bus: the word before the colon of a scope.
PUBLISH: Final = "publish"

#: The action of receiving the deliveries of a queue, payloads included.
CONSUME: Final = "consume"

#: The scope to read metrics; it names no bus.
METRICS: Final = "metrics"

#: The scope to read everything except payloads, including the page; it names no bus.
READ: Final = "read"

#: The scope to read payloads: events, requests, responses of targets; it names no bus.
PAYLOADS: Final = "payloads"

#: The scope to operate, for example to pause, enable or redrive; it names no bus.
OPERATE: Final = "operate"

#: The scope to open the portal of one owner. A token with it opens nothing else: neither the page nor the API.
PORTAL: Final = "portal"

#: The prefix of a scope that limits a token to an owner.
OWNER: Final = "owner:"

#: Represents every bus, or every queue, in a scope.
ANY_BUS: Final = "*"


@dataclass(frozen=True)
class ApiToken:
    """A token without its secret, identified by its name. The ledger stores only a hash of the secret.

    `scopes` are the allowed actions, each `<action>:<bus or queue>` or one without a name, such as `read`;
    `owner:<name>` limits the token to an owner.

    All times have a time zone. `expires_at` is None if the token never expires; `revoked_at` is
    None if it is not revoked.
    """

    name: str
    scopes: tuple[str, ...]
    made_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    @property
    def owners(self) -> tuple[str, ...] | None:
        """The owners whose rules and buses the token is limited to; None if it is not limited."""
        return tuple(each.removeprefix(OWNER) for each in self.scopes if each.startswith(OWNER)) or None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token is valid at the given time, which must have a time zone."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, action: str, name: str) -> bool:
        """Return whether a scope of the token allows an action on a bus or queue."""
        return f"{action}:{name}" in self.scopes or f"{action}:{ANY_BUS}" in self.scopes


@dataclass(frozen=True)
class KeptResponse:
    """A response stored under the caller's token and key; `call_hash` is the hash of the call, including its content.

    `status` is the HTTP status, `body` is JSON text, and `made_at` has a time zone.
    """

    caller: str
    key: str
    call_hash: str
    status: int
    body: str
    made_at: datetime


@dataclass(frozen=True)
class OperatorAction:
    """One recorded call: its caller, its request (truncated, without payloads), and the status of its response.

    A call is recorded before it is carried out. `status` is the HTTP status, or the exit code of a command. It is None
    for a form of the page and for a call that ended without a response.
    """

    action_id: int
    at: datetime
    by: str
    call: str
    asked: str
    status: int | None
