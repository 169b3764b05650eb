"""A token of the API: what lets a program publish to buses over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

#: What every token begins with, so that scanners of source code know one.
PREFIX: Final = "ebt_"

#: What a scope may allow: the word before its colon.
PUBLISH: Final = "publish"

#: The scope to read metrics; it is of no bus.
METRICS: Final = "metrics"

#: The scope to look at everything but payloads, the page too; it is of no bus.
READ: Final = "read"

#: The scope to see payloads: events, requests, responses of targets; it is of no bus.
PAYLOADS: Final = "payloads"

#: The scope to change how things stand: pause, enable, redrive; it is of no bus.
OPERATE: Final = "operate"

#: What a limit to an owner begins with, among the scopes.
OWNER: Final = "owner:"

#: Stands for every bus in a scope.
ANY_BUS: Final = "*"


@dataclass(frozen=True)
class ApiToken:
    """A token by its name, without its secret, of which the ledger keeps a hash only.

    `scopes`: what it allows, each `<action>:<bus>`, or one of no bus, such as `read`; `owner:<name>` limits it.
    Times are aware; None: it never expires, it was not revoked.
    """

    name: str
    scopes: tuple[str, ...]
    made_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    @property
    def owners(self) -> tuple[str, ...] | None:
        """Return the owners whose rules and buses it is for, None: it is for everybody's."""
        return tuple(each.removeprefix(OWNER) for each in self.scopes if each.startswith(OWNER)) or None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token counts at an aware time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, action: str, bus: str) -> bool:
        """Return whether a scope of the token has an action on a bus."""
        return f"{action}:{bus}" in self.scopes or f"{action}:{ANY_BUS}" in self.scopes
