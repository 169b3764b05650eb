"""The delivery window of a target in a rule file."""

from __future__ import annotations

from eventbridge.rules.frozen import FrozenModel

#: The weekdays, as written in rule files.
WEEKDAYS: tuple[str, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: The default hours of a window.
WHOLE_DAY = "00:00-24:00"


class DeliverBetween(FrozenModel):
    """A delivery window, by the wall clock of an IANA `time_zone`; see `eventbridge.policy.delivery_window`.

    `hours` are `HH:MM-HH:MM`, the end excluded, past midnight if it is before the beginning; `weekdays` those on
    which the hours begin; `blackout_dates`, `YYYY-MM-DD`, are closed from midnight to midnight.
    """

    hours: str = WHOLE_DAY
    weekdays: tuple[str, ...] = WEEKDAYS
    time_zone: str
    blackout_dates: tuple[str, ...] = ()


class DeliverWithin(FrozenModel):
    """The time limit of a delivery after its event was published, in seconds of wall time."""

    seconds: float
