"""Decides when a delivery may be sent: within its target's window and before its deadline.

A window is open if the wall clock in its time zone shows one of its hours, on one of its weekdays and not on a blackout
date. When clocks are set back, an hour occurs twice; when they are set forward, a window within the skipped hour does
not open that day.

`deliver_within` is measured from when the bus accepted the event. Time on hold, during a pause or outside the window
counts. For a redrive or replay, it is measured from when the batch was planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from eventbridge.model.outcome import DeadLettered, Outcome, RetryAt
from eventbridge.rules.model import WEEKDAYS, DeliverBetween
from eventbridge.rules.rule_set import RuleSet

_DAY = timedelta(days=1)

#: The dead letter reason of a delivery that was not sent in time.
DEADLINE_MISSED = "deadline_missed"


def windows_of(rules: RuleSet) -> dict[tuple[str, str], DeliverBetween]:
    """Return the delivery windows by rule and target, for the targets that have one."""
    targets = ((rule.name, target) for rule in rules.with_field("deliver_between") for target in rule.targets.values())
    return {(rule, each.name): each.deliver_between for rule, each in targets if each.deliver_between is not None}


def next_opening(window: DeliverBetween, now: datetime) -> datetime:
    """Return the first time at or after `now`, in UTC, at which the window is open: `now` itself if it is open.

    Raises ValueError for a window that never opens; the loader of rule files rejects such windows.
    """
    hours = _hours(window)
    if hours.open_at(now):
        return now
    today = now.astimezone(hours.zone).date() - _DAY
    # each blackout date and each clock change delays a window of a single weekday by at most a week
    for number in range(7 * (len(hours.blackout_dates) + 3)):
        found = [at for at in hours.changes(today + number * _DAY) if at > now and hours.open_at(at)]
        if found:
            return min(found)
    raise ValueError(f"the window {window} never opens after {now}")


def first_opening(window: DeliverBetween | None, at: datetime, not_before: datetime | None = None) -> datetime:
    """Return the first time at or after `at` and `not_before` at which a delivery may be sent; None means no limit."""
    at = at if not_before is None else max(at, not_before)
    return at if window is None else next_opening(window, at)


@dataclass(frozen=True)
class _Hours:
    """A parsed window: `opens` and `closes` are minutes of the day, and weekday 0 is Monday.

    The window spans midnight unless `opens` is before `closes`.
    """

    opens: int
    closes: int
    weekdays: frozenset[int]
    zone: ZoneInfo
    blackout_dates: frozenset[date]

    def open_at(self, at: datetime) -> bool:
        wall = at.astimezone(self.zone)
        if wall.date() in self.blackout_dates:
            return False
        minute = wall.hour * 60 + wall.minute
        if self.opens < self.closes:
            return self.opens <= minute < self.closes and wall.weekday() in self.weekdays
        # The hours after midnight belong to the window that opened on the previous day.
        return (minute >= self.opens and wall.weekday() in self.weekdays) or (
            minute < self.closes and (wall.weekday() - 1) % 7 in self.weekdays
        )

    def changes(self, day: date) -> Iterator[datetime]:
        """Yield every time at which the window may open on a day."""
        begins, ends = self._instant(day, 0), self._instant(day + _DAY, 0)
        yield begins
        for fold in (0, 1):
            yield self._instant(day, self.opens, fold)
        before = begins - timedelta(hours=1)
        if self._offset(before) != self._offset(ends):
            yield self._change_of_clocks(before, ends)

    def _instant(self, day: date, minute: int, fold: int = 0) -> datetime:
        wall = datetime.combine(day, time(minute // 60, minute % 60, fold=fold), self.zone)
        return wall.astimezone(UTC)

    def _offset(self, at: datetime) -> timedelta | None:
        return at.astimezone(self.zone).utcoffset()

    def _change_of_clocks(self, low: datetime, high: datetime) -> datetime:
        offset = self._offset(low)
        while high - low > timedelta(seconds=1):
            middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
            low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
        return high


@lru_cache(maxsize=1_024)
def _hours(window: DeliverBetween) -> _Hours:
    opens, closes = map(_minute, window.hours.split("-"))
    return _Hours(
        opens,
        closes,
        frozenset(map(WEEKDAYS.index, window.weekdays)),
        ZoneInfo(window.time_zone),
        frozenset(map(date.fromisoformat, window.blackout_dates)),
    )


def _minute(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)


#: A waiting delivery is reported as running late once this share of its `deliver_within` has passed.
REPORTED_AT = 0.8


def deadline_of(published_at: datetime, within_seconds: float | None) -> datetime | None:
    """Return the time from which a delivery is too late to be sent, or None if it never is."""
    return None if within_seconds is None else published_at + timedelta(seconds=within_seconds)


def missed(deadline_at: datetime | None, now: datetime) -> DeadLettered | None:
    """Return a DeadLettered outcome if a delivery's deadline has passed at `now`; None if it may be sent."""
    if deadline_at is None or now < deadline_at:
        return None
    return DeadLettered(DEADLINE_MISSED, f"its deadline was {_time_text(deadline_at)}")


def dead_letter_if_late(outcome: Outcome, deadline_at: datetime | None) -> Outcome:
    """Return the outcome, or a DeadLettered outcome instead of a retry that would be too late.

    The delivery is dead-lettered immediately and not at its deadline. It can no longer succeed, and its owner learns of
    it sooner.
    """
    if deadline_at is None or not isinstance(outcome, RetryAt) or outcome.due_at < deadline_at:
        return outcome
    detail = f"{outcome.reason}, and its deadline {_time_text(deadline_at)} is before the next attempt"
    return DeadLettered(DEADLINE_MISSED, detail)


def missed_before(within_seconds: float, now: datetime) -> datetime:
    """Return the publish time before which an event's deliveries are too late at `now`."""
    return now - timedelta(seconds=within_seconds)


def late_reported_before(within_seconds: float, now: datetime) -> datetime:
    """Return the publish time before which an event's deliveries must be reported as running late at `now`."""
    return now - timedelta(seconds=within_seconds * REPORTED_AT)


def _time_text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
