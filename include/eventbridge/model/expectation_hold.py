"""A rule whose matched events violate its expectation: its later deliveries are on hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

#: The beginning of the reason of such a hold, in messages and in the event `rule.on_hold`.
EXPECTATION_FAILED = "expectation_failed"


@dataclass(frozen=True)
class ExpectationHold:
    """The hold of a rule until an operator releases it: what failed, where it was found, and since when.

    `found_in` is the id of a batch, or the hour of a quality check in ISO 8601.
    """

    rule: str
    detail: str
    found_in: str
    since: datetime

    @property
    def reason(self) -> str:
        """Return the reason of the hold for messages."""
        return f"{EXPECTATION_FAILED}: {self.detail}"
