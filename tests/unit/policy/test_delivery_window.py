"""Delivery windows follow the wall clock of their time zone, past midnight and through changes of clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.policy.delivery_windows import _hours, next_opening
from eventbridge.rules.model import WEEKDAYS, DeliverBetween

WORKING = ("mon", "tue", "wed", "thu", "fri")
#: Time zones whose clocks change at midnight, by half an hour, by a whole day, twice a year or never.
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Africa/Cairo", "Australia/Lord_Howe",
    "Pacific/Apia", "America/Havana", "Africa/Casablanca", "Asia/Kolkata", "Asia/Beirut",
)  # fmt: skip
#: Days near which the clocks of these time zones changed.
CHANGES = (
    "2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2018-11-04", "2018-02-18", "2026-04-24", "2026-10-30",
    "2026-04-05", "2026-10-04", "2011-12-30", "2026-02-15", "2026-03-22",
)  # fmt: skip


def window(hours: str = "00:00-24:00", zone: str = "Europe/Berlin", **fields: tuple[str, ...]) -> DeliverBetween:
    """Return a window."""
    return DeliverBetween(hours=hours, time_zone=zone, **fields)


def at(text: str) -> datetime:
    """Return a time that is written with its offset."""
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("given_window", "now", "opens"),
    [
        (window("08:00-18:00"), "2026-06-01T07:59:59+02:00", "2026-06-01T08:00:00+02:00"),
        (window("08:00-18:00"), "2026-06-01T08:00:00+02:00", "2026-06-01T08:00:00+02:00"),
        (window("08:00-18:00"), "2026-06-01T17:59:59.9+02:00", "2026-06-01T17:59:59.9+02:00"),
        (window("08:00-18:00"), "2026-06-01T18:00:00+02:00", "2026-06-02T08:00:00+02:00"),
        # Friday evening to Monday morning, over a change of clocks
        (window("08:00-18:00", weekdays=WORKING), "2026-03-27T19:00:00+01:00", "2026-03-30T08:00:00+02:00"),
        (window(weekdays=("sat",)), "2026-06-01T00:00:00+02:00", "2026-06-06T00:00:00+02:00"),
        # past midnight, where the hours belong to the previous day
        (window("22:00-06:00", weekdays=("fri",)), "2026-06-06T05:59:00+02:00", "2026-06-06T05:59:00+02:00"),
        (window("22:00-06:00", weekdays=("fri",)), "2026-06-05T05:59:00+02:00", "2026-06-05T22:00:00+02:00"),
        (window("22:00-06:00", weekdays=("fri",)), "2026-06-06T06:00:00+02:00", "2026-06-12T22:00:00+02:00"),
        # a blackout date closes a window from midnight to midnight, even one that spans midnight
        (
            window("22:00-06:00", blackout_dates=("2026-06-06",)),
            "2026-06-06T00:00:00+02:00",
            "2026-06-07T00:00:00+02:00",
        ),
        (window(blackout_dates=("2026-12-25", "2026-12-26")), "2026-12-25T00:00:00+01:00", "2026-12-27T00:00:00+01:00"),
        # clocks go forward at 02:00: the first moment after it, or the next day if no time is left
        (window("02:30-05:00"), "2026-03-29T01:59:00+01:00", "2026-03-29T03:00:00+02:00"),
        (window("02:10-02:50"), "2026-03-29T01:59:00+01:00", "2026-03-30T02:10:00+02:00"),
        # clocks go back at 03:00, so the hour occurs twice
        (window("02:10-02:50"), "2026-10-25T02:50:00+02:00", "2026-10-25T02:10:00+01:00"),
        (window("01:00-02:30"), "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00"),
    ],
)
def test_next_opening(given_window: DeliverBetween, now: str, opens: str) -> None:
    """The next opening is the first open moment from now on, to the second, in UTC."""
    found = next_opening(given_window, at(now))

    assert found == at(opens)


def is_open(drawn: DeliverBetween, moment: datetime) -> bool:
    return _hours(drawn).open_at(moment)


@st.composite
def windows(draw: st.DrawFn) -> DeliverBetween:
    """Draw a window whose hours begin and end at quarters of an hour."""
    quarters = draw(st.lists(st.integers(0, 95), min_size=2, max_size=2, unique=True))
    opens, closes = (f"{quarter // 4:02}:{quarter % 4 * 15:02}" for quarter in quarters)
    days = draw(st.sets(st.sampled_from(WEEKDAYS), min_size=1))
    return window(
        f"{opens}-{closes}",
        draw(st.sampled_from(ZONES)),
        weekdays=tuple(day for day in WEEKDAYS if day in days),
        blackout_dates=tuple(draw(st.lists(st.sampled_from(CHANGES), max_size=3, unique=True))),
    )


@given(windows(), st.sampled_from(CHANGES), st.integers(-2 * 24 * 60, 2 * 24 * 60), st.integers(0, 59))
def test_next_opening_is_the_first_open_minute(drawn: DeliverBetween, day: str, minutes: int, seconds: int) -> None:
    """Near changes of clocks, the next opening is the first open minute that is not before now."""
    now = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(minutes=minutes, seconds=seconds)

    found = next_opening(drawn, now)

    assert found >= now
    assert is_open(drawn, found)
    assert found == now or not is_open(drawn, now)
    minute = now.replace(second=0)
    for _ in range(3 * 24 * 60 // 5):  # openings and changes of clocks are at quarters of an hour
        minute += timedelta(minutes=5) - timedelta(minutes=minute.minute % 5)
        if minute >= found:
            break
        assert not is_open(drawn, minute), minute


@given(windows(), st.integers(0, 366 * 24 * 60))
def test_an_opening_is_within_weeks(drawn: DeliverBetween, minutes: int) -> None:
    """Every window opens: one with a single weekday within a week, plus a week for each blackout date."""
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)

    assert next_opening(drawn, now) - now <= timedelta(weeks=len(drawn.blackout_dates) + 3)
