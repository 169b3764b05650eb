"""The arguments of a target type's opener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from eventbridge import rules
from eventbridge.config.connection import Connection
from eventbridge.errors import UserError
from eventbridge.targets.ssrf_guard import Network

AnyTarget = TypeVar("AnyTarget", bound=rules.Target, covariant=True)


@dataclass(frozen=True)
class Opening(Generic[AnyTarget]):
    """One target of a rule, to be opened for one push task.

    `connections` returns the current connection of a name. A target that opens connections itself connects only to
    public addresses and to those in `allow_addresses` (`ssrf_guard`). One that writes files writes only below
    `file_folders`. `clock` returns aware times.
    """

    rule: str
    target: AnyTarget
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]
    allow_addresses: Sequence[Network] = ()
    file_folders: Sequence[Path] = ()

    def error(self, what: str, remedy: str) -> UserError:
        """Return the error to raise for a target that the rule file makes unusable."""
        return UserError(f"Target {self.target.name!r} of rule {self.rule!r} {what}. {remedy}.")
