"""A rule whose matched events are not what it expects: its later deliveries are on hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

#: What the reason of such a hold begins with, for people and in the event `rule.on_hold`.
EXPECTATION_FAILED = "expectation_failed"


@dataclass(frozen=True)
class ExpectationHold:
    """That a rule is on hold until an operator releases it: what failed, where that was found, and since when.

    `found_in` is the id of a batch, or the hour of a quality check in ISO 8601.
    """

    rule: str
    detail: str
    found_in: str
    since: datetime

    @property
    def reason(self) -> str:
        """The hold as people are told of it."""
        return f"{EXPECTATION_FAILED}: {self.detail}"
