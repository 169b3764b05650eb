"""The arguments of a source type's opener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.errors import UserError
from eventbridge.rules import Source

AnySource = TypeVar("AnySource", bound=Source, covariant=True)


@dataclass(frozen=True)
class Opening(Generic[AnySource]):
    """The source of a bus, to be opened; `connections` finds a connection by its name, `clock` gives aware times."""

    bus: str
    source: AnySource
    settings: Settings
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]

    def error(self, what: str, remedy: str) -> UserError:
        """Return the error to raise for a source that the rule file makes unusable."""
        return UserError(f"The source of the bus {self.bus!r} {what}. {remedy}.")
