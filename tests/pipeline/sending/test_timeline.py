"""The timeline of a period equals the stats, by step."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pipeline.delivering import RunningClock, Sending

from eventbridge.api.page.chart import counts_chart, latency_chart, responses_chart, success_chart
from eventbridge.views.requests import recent_responses
from eventbridge.views.stats import daily_stats, rule_days
from eventbridge.views.timeline import (
    LastHour,
    Period,
    Step,
    Timeline,
    last_hours,
    reconciliation_today,
    rule_timeline,
    timeline,
    totals,
)


def last(sending: Sending, hours: float) -> Period:
    """Return the period of the last hours."""
    now = sending.runtime.clock()
    return Period(now - timedelta(hours=hours), now)


@pytest.mark.parametrize(
    ("hours", "minutes", "of_rule_minutes"),
    [(1, 1, 1), (6, 5, 60), (24, 30, 60), (24 * 7, 180, 180), (24 * 60, 1440, 1440)],
)
def test_a_timeline_counts_each_delivery_in_one_step(
    sending: Sending, clock: RunningClock, hours: float, minutes: int, of_rule_minutes: int
) -> None:
    """For all buses, a rule and its targets, by steps from a minute to a day; the reconciliation agrees."""
    sending.begin(20, b"not json", crm="/healthy/crm", bad="/bad/x")
    sending.deliver()
    runtime = sending.runtime
    reconciliation = reconciliation_today(runtime)
    (rule,) = runtime.rule_set().rules
    clock.advance(max(minutes, of_rule_minutes) * 60 + 60)
    whole = timeline(runtime, last(sending, hours))
    of_rule = rule_timeline(runtime, rule, last(sending, hours))
    counted = totals(runtime, last(sending, hours))
    clock.advance(-max(minutes, of_rule_minutes) * 60)

    assert (whole.length, of_rule[""].length) == (timedelta(minutes=minutes), timedelta(minutes=of_rule_minutes))
    assert (counted.events, counted.delivered, counted.failed) == (21, 20, 20)

    hours_of = last_hours(runtime, list(runtime.rule_set().rules.values()))
    assert {name: (each.delivered, each.dead_lettered, each.pending) for (_, name), each in hours_of.items()} == {
        "": (20, 20, 0),
        "crm": (20, 0, 0),
        "bad": (0, 20, 0),
    }
    assert (hours_of[rule, ""].p99_seconds, hours_of[rule, "bad"].p99_seconds) == (counted.p99_seconds, None)
    assert rule_days(runtime, rule, 7) == list(daily_stats(runtime, 7, rule).rules)
    assert [round(sum(getattr(each, name) for each in whole.steps) * minutes) for name in ("events", "delivered")] == [
        21,
        20,
    ]
    assert {name: round(sum(each.failed for each in one.steps) * of_rule_minutes) for name, one in of_rule.items()} == {
        "": 20,
        "crm": 0,
        "bad": 20,
    }
    assert sum(each.p99_seconds is not None for each in of_rule["crm"].steps) >= 1
    assert all(each.p99_seconds is None for each in of_rule["bad"].steps)
    assert (
        reconciliation.moved,
        reconciliation.accounted,
        reconciliation.delivered,
        reconciliation.dead_lettered,
        reconciliation.difference,
    ) == (21, 21, 20, 20, 0)


def test_the_reconciliation_has_every_term_and_adds_up(sending: Sending, clock: RunningClock) -> None:
    """Deliveries that wait for a disabled target are pending in that day's reconciliation, and before it a day
    later.
    """
    sending.begin(9, b"not json", crm="/healthy/crm", gone="/gone/x")
    sending.deliver()
    sending.publish(3)  # these find the target disabled
    sending.deliver()
    first = reconciliation_today(sending.runtime)
    clock.advance(24 * 3600)
    second = reconciliation_today(sending.runtime)

    assert (first.moved, first.valid, first.malformed, first.duplicate, first.gap) == (13, 12, 1, 0, 0)
    assert (first.matched, first.delivered, first.difference) == (24, 12, 0)
    assert first.pending > 0
    assert first.dead_lettered + first.pending == 12
    assert (first.pending_before, second.pending_before) == (0, first.pending)
    assert (second.matched, second.delivered, second.dead_lettered, second.pending) == (0, 0, 0, first.pending)
    for reconciliation in (first, second):
        owed = reconciliation.pending_before + reconciliation.matched + reconciliation.again
        assert (
            owed
            == reconciliation.delivered
            + reconciliation.dead_lettered
            + reconciliation.pending
            + reconciliation.difference
        )


def test_responses_are_counted_by_class(sending: Sending) -> None:
    """Of each target its own, by the minute; a target that cannot be reached has no response."""
    sending.begin(6, b"not json", crm="/healthy/crm", bad="/bad/x")
    sending.deliver()
    runtime = sending.runtime
    (rule,) = runtime.rule_set().rules
    found = {name: recent_responses(runtime, rule, name) for name in ("crm", "bad")}
    chart = responses_chart(found["bad"].classes, runtime.ledger.now(), "responses", "Responses")

    assert {name: Counter(kind for _, kind in each.classes.elements()) for name, each in found.items()} == {
        "crm": {2: 6},
        "bad": {4: 6},
    }
    assert {each.second for each, _ in found["bad"].classes} == {0}
    assert [len(each.newest) for each in found.values()] == [6, 6]
    assert {line.name: sum(value or 0 for value in line.values) for line in chart.lines} == {
        "2xx": 0,
        "3xx or 4xx": 6,
        "5xx or none": 0,
    }
    assert responses_chart({}, runtime.ledger.now(), "responses", "Responses").has_values is False
    assert "in the 12 newest files of outcomes" in chart.unit, "the chart says which responses it covers"


@pytest.mark.parametrize(
    ("hours", "step"), [(1, "minute is"), (24, "30 minutes are"), (2 * 24, "hour is"), (7 * 24, "3 hours are")]
)
def test_an_empty_chart_says_what_it_waits_for(sending: Sending, hours: int, step: str) -> None:
    """It names what there is none of in the period, and when this appears: once a step of the chart is over."""
    sending.begin(1, crm="/healthy/crm")
    now = sending.runtime.clock()
    empty = timeline(sending.runtime, Period(now - timedelta(hours=hours), now))

    for chart, what in (
        (counts_chart(empty, "counts", "Throughput"), "events"),
        (latency_chart(empty, "times", "Latency"), "latencies"),
        (success_chart(empty, "success", "Success rate"), "deliveries"),
    ):
        assert not chart.has_values
        assert chart.empty == (f"No {what} to draw.", f"They appear here once their {step} over.")


def test_deliveries_on_hold_for_a_disabled_target_count_against_its_rule(sending: Sending, clock: RunningClock) -> None:
    """A rule of two targets, one of them disabled, is not at 100 %: not in its hour, and on no chart."""
    sending.begin(9, crm="/healthy/crm", gone="/gone/x")
    sending.deliver()
    sending.publish(3)  # these find the target disabled
    sending.deliver()
    clock.advance(120)
    runtime = sending.runtime
    (rule,) = runtime.rule_set().rules
    hour = last_hours(runtime, list(runtime.rule_set().rules.values()))[rule, ""]
    chart = success_chart(rule_timeline(runtime, rule, last(sending, 1))[""], "success", "delivered")

    assert (hour.delivered, hour.dead_lettered + hour.pending) == (12, 12)
    assert hour.pending > 0
    assert hour.delivered_percent == 50.0
    assert [value for value in chart.lines[0].values if value is not None] == [50.0]
    assert LastHour(0, 0, 0).delivered_percent is None
    assert LastHour(0, 0, 5).delivered_percent == 0.0


def test_a_chart_says_in_its_description_and_table_what_its_lines_show(sending: Sending, clock: RunningClock) -> None:
    """A value that is missing breaks its line, and a single one is a dot."""
    sending.begin(4, crm="/healthy/crm")
    sending.deliver()
    clock.advance(120)
    went = timeline(sending.runtime, last(sending, 1))
    counts, times, success = (
        counts_chart(went, "one", "Events"),
        latency_chart(went, "two", "Times"),
        success_chart(went, "three", "Taken"),
    )

    assert [line.name for line in counts.lines] == ["received", "delivered", "failed"]
    assert len(counts.times) == len(counts.lines[0].values) == 60
    assert "delivered: highest" in counts.summary
    assert "failed: highest 0.0" in counts.summary
    drawn = f"{times.lines[0].path}{times.lines[0].dots}"
    assert drawn.count("M") + drawn.count("L") == sum(value is not None for value in times.lines[0].values)
    assert {value for value in success.lines[0].values if value is not None} == {100.0}


def test_a_line_keeps_its_colour_on_every_chart_and_a_lone_value_is_a_dot() -> None:
    """What failed is not drawn as what was delivered on another page; two values that are neighbours are a line."""
    began = datetime(2026, 11, 27, tzinfo=UTC)
    rows = [(1.0, None), (0.0, 0.5), (1.0, None), (1.0, 2.0), (1.0, 2.0)]
    steps = [Step(began, 1.0, there, 1.0, 0.0, seconds, seconds) for there, seconds in rows]
    went = Timeline(timedelta(minutes=1), tuple(steps))
    ours, rules = (counts_chart(went, "one", "Events", events=events) for events in (True, False))
    colours = [{line.name: line.colour for line in each.lines} for each in (ours, rules)]
    seconds = latency_chart(went, "two", "Times").lines[0]

    assert [(each["delivered"], each["failed"]) for each in colours] == [(2, 3), (2, 3)]
    assert all(len(set(each.values())) == 3 for each in colours)
    assert (seconds.dots.count("M"), seconds.path.count("M"), seconds.path.count("L")) == (1, 1, 1)
    assert not latency_chart(Timeline(timedelta(minutes=1), (steps[0],)), "three", "Times").has_values


@pytest.mark.parametrize(
    ("highest", "lines"),
    [
        (0, [0, 1]),
        (0.7, [0, 0.2, 0.4, 0.6, 0.8]),
        (27, [0, 10, 20, 30]),
        (80, [0, 20, 40, 60, 80]),
        (101, [0, 50, 100, 150]),
    ],
)
def test_the_lines_of_a_chart_are_round_numbers_from_zero(highest: float, lines: list[float]) -> None:
    """At most five, and none far above the highest value."""
    steps = (Step(datetime(2026, 11, 27, tzinfo=UTC), highest, 0.0, 0.0, 0.0, None, None),)
    chart = counts_chart(Timeline(timedelta(minutes=1), steps), "one", "Events")

    assert [round(value, 6) for value, _ in chart.scale] == lines
    assert [chart.scale[0][1], chart.scale[-1][1]] == [100, 0]


def test_a_chart_has_a_gap_before_the_oldest_stat(sending: Sending, clock: RunningClock) -> None:
    """Nothing is known of the time before; afterwards a step without events counts none."""
    sending.begin(9, crm="/healthy/crm")
    sending.deliver()
    clock.advance(600)
    chart = counts_chart(timeline(sending.runtime, last(sending, 1)), "counts", "Throughput")
    values = chart.lines[0].values
    first = next(number for number, value in enumerate(values) if value is not None)

    assert first > 40
    assert values[first:] == (9.0, *[0.0] * (len(values) - first - 1))
    assert chart.lines[0].path.count("M") == 1


def test_a_step_is_not_shorter_than_the_stats_of_its_time(sending: Sending, clock: RunningClock) -> None:
    """An hour of yesterday is one step for a target, whose minutes are folded; the last hour has a step each minute."""
    sending.begin(1, crm="/healthy/crm")
    sending.deliver()
    (rule,) = sending.runtime.rule_set().rules
    now = clock()
    old = Period(now - timedelta(hours=20), now - timedelta(hours=19))

    assert rule_timeline(sending.runtime, rule, old)[""].length == timedelta(hours=1)
    assert rule_timeline(sending.runtime, rule, last(sending, 1))[""].length == timedelta(minutes=1)
    assert timeline(sending.runtime, old).length == timedelta(minutes=1)
    week = timedelta(days=7)
    assert timeline(sending.runtime, Period(old.since - week, old.until - week)).length == timedelta(hours=1)
