"""What the opener of a target's type is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from eventbridge import rule as rules
from eventbridge.config.connection import Connection
from eventbridge.errors import UserError
from eventbridge.targets.ssrf_guard import Network

AnyTarget = TypeVar("AnyTarget", bound=rules.Target, covariant=True)


@dataclass(frozen=True)
class Opening(Generic[AnyTarget]):
    """One target of a rule, to be opened for one push task.

    `connections` finds a connection by its name, each time as it is then. What connects by itself connects to public
    addresses and to those in `allow_addresses` only (`ssrf_guard`). What writes files writes them below
    `file_folders` only. `clock` gives aware times.
    """

    rule: str
    target: AnyTarget
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]
    allow_addresses: Sequence[Network] = ()
    file_folders: Sequence[Path] = ()

    def error(self, what: str, remedy: str) -> UserError:
        """Return the error to raise for a target that cannot be used as it is written."""
        return UserError(f"Target {self.target.name!r} of rule {self.rule!r} {what}. {remedy}.")
