"""When a target may be sent to, as a rule file says it."""

from __future__ import annotations

from eventbridge.rule.frozen import FrozenModel

#: The days of a week, as rule files write them.
WEEKDAYS: tuple[str, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: The hours of a window that says nothing of hours.
WHOLE_DAY = "00:00-24:00"


class DeliverBetween(FrozenModel):
    """A delivery window, by the wall clock of an IANA `time_zone`; see `eventbridge.decision.delivery_window`.

    `hours` are `HH:MM-HH:MM`, the end excluded, over midnight if it comes before the beginning; `weekdays` those on
    which the hours begin; `blackout_dates`, `YYYY-MM-DD`, are closed from midnight to midnight.
    """

    hours: str = WHOLE_DAY
    weekdays: tuple[str, ...] = WEEKDAYS
    time_zone: str
    blackout_dates: tuple[str, ...] = ()


class DeliverWithin(FrozenModel):
    """How long after its event was published a delivery may be made, in seconds of wall time."""

    seconds: float
