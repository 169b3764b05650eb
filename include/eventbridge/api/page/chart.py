"""Draws a timeline as lines of an SVG; a table beside it has the same values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from eventbridge.views.requests import MAX_FILES
from eventbridge.views.timeline import Step, Timeline

#: The size of the drawing in its own units: as wide as a phone's screen, so that labels are readable there too.
WIDTH, HEIGHT = 360, 100
_ROUND = (1, 2, 5, 10, 20, 50)
#: The maximum number of steps between the horizontal lines.
_MAX_STEPS = 4
#: The number of each line's colour in the style sheet, so that on every chart failed is red and delivered green.
_COLOURS = {"received": 1, "deferred": 1, "p50": 1, "delivered": 2, "p99": 2, "failed": 3}
_COLOURS |= {"3xx or 4xx": 1, "2xx": 2, "5xx or none": 3}
_MINUTE = timedelta(minutes=1)
#: The maximum number of steps of the chart of responses.
_MAX_RESPONSE_STEPS = 30


@dataclass(frozen=True)
class Line:
    """One line of a chart: its name, its values (None: no value), and the SVG paths of its segments and single dots."""

    name: str
    values: tuple[float | None, ...]
    path: str
    dots: str
    colour: int


@dataclass(frozen=True)
class Chart:
    """A chart of one timeline: `key` is unique on its page.

    `scale` has the values of the horizontal lines, each with its height in the drawing. `empty` has two lines that
    a chart without values shows: which values are missing, and when they appear.
    """

    key: str
    title: str
    summary: str
    unit: str
    scale: tuple[tuple[float, float], ...]
    times: tuple[str, ...]
    lines: tuple[Line, ...]
    empty: tuple[str, str]

    @property
    def has_values(self) -> bool:
        """Whether there is anything to draw."""
        return any(line.path or line.dots for line in self.lines)


def sparkline(values: Sequence[float | None]) -> str:
    """Return the path of a line through values in a box of 100 by 32, with gaps where values are missing."""
    top = max((each for each in values if each is not None), default=0) or 1
    across = 100 / max(1, len(values) - 1)
    path, drawing = [], False
    for number, value in enumerate(values):
        if value is not None:  # a line of no length makes a value without neighbours visible
            start = "" if drawing else f"M{number * across:.1f} {30 - 28 * value / top:.1f}h.1"
            path.append(start or f"L{number * across:.1f} {30 - 28 * value / top:.1f}")
        drawing = value is not None
    return "".join(path)


def counts_chart(timeline: Timeline, key: str, title: str, *, events: bool = True) -> Chart:
    """Return the chart of incoming events or deferred deliveries, and delivered and failed deliveries, per minute."""
    counts = {"received": [each.events for each in timeline.steps]} if events else {}
    counts |= {"delivered": [each.delivered for each in timeline.steps]}
    counts |= {"failed": [each.failed for each in timeline.steps]}
    if not events:
        counts["deferred"] = [each.pending for each in timeline.steps]
    known = [each.is_known for each in timeline.steps]
    lines = [
        (name, [each if is_known else None for each, is_known in zip(values, known, strict=True)])
        for name, values in counts.items()
    ]
    return _chart(timeline, key, title, "per minute", lines, _empty("events" if events else "deliveries", timeline))


def latency_chart(timeline: Timeline, key: str, title: str) -> Chart:
    """Return the chart of the time from published to delivered."""
    lines: list[tuple[str, Sequence[float | None]]] = [
        ("p50", [each.p50_seconds for each in timeline.steps]),
        ("p99", [each.p99_seconds for each in timeline.steps]),
    ]
    return _chart(timeline, key, title, "seconds", lines, _empty("latencies", timeline))


def success_chart(timeline: Timeline, key: str, title: str) -> Chart:
    """Return the chart of the success rate: percent delivered of all delivered, dead-lettered and deferred."""
    counts = [(each.delivered, each.delivered + each.failed + each.pending) for each in timeline.steps]
    shares = [100 * delivered / every if every else None for delivered, every in counts]
    empty = _empty("deliveries", timeline)
    return _chart(timeline, key, title, "%", [("delivered", shares)], empty, (0.0, 50.0, 100.0))


def responses_chart(classes: Mapping[tuple[datetime, int], int], now: datetime, key: str, title: str) -> Chart:
    """Return the chart of responses by minute and class, as `RecentResponses` has them, until now; its unit says which
    responses it covers."""
    first = min((minute for minute, _ in classes), default=now)
    length = _MINUTE * max(1, math.ceil((now - first) / _MINUTE / _MAX_RESPONSE_STEPS))
    count = max(2, math.ceil((now - first) / length))
    counts = {name: [0.0] * count for name in ("2xx", "3xx or 4xx", "5xx or none")}
    for (minute, kind), number in classes.items():
        name = "2xx" if kind == 2 else "5xx or none" if kind in (0, 5) else "3xx or 4xx"
        counts[name][min(int((minute - first) / length), count - 1)] += number / (length / _MINUTE)
    steps = (Step(first + number * length, 0, 0, 0, 0, None, None) for number in range(count))
    lines: list[tuple[str, Sequence[float | None]]] = [
        (name, values if classes else [None] * count) for name, values in counts.items()
    ]
    unit = f"per minute, of the attempts in the {MAX_FILES} newest files of outcomes"
    empty = ("No responses in the newest files of outcomes.", "They appear here once a push has ended.")
    return _chart(Timeline(length, tuple(steps)), key, title, unit, lines, empty)


def _empty(what: str, timeline: Timeline) -> tuple[str, str]:
    minutes = timeline.length // _MINUTE
    number, unit = (minutes, "minute") if minutes < 60 else (minutes // 60, "hour")
    step = f"{unit} is" if number == 1 else f"{number} {unit}s are"
    return f"No {what} to draw.", f"They appear here once their {step} over."


def _chart(
    timeline: Timeline,
    key: str,
    title: str,
    unit: str,
    lines: Sequence[tuple[str, Sequence[float | None]]],
    empty: tuple[str, str],
    scale: tuple[float, ...] = (),
) -> Chart:
    known = [value for _, values in lines for value in values if value is not None]
    scale = scale or _scale(max(known, default=0.0))
    edge = scale[-1]
    summaries = []
    for name, values in lines:
        given = [value for value in values if value is not None]
        summaries.append(f"{name}: highest {max(given):,.1f}, last {given[-1]:,.1f}" if given else f"{name}: none")
    drawn = tuple(Line(name, tuple(values), *_paths(values, edge), _COLOURS[name]) for name, values in lines)
    days = timeline.steps[-1].at - timeline.steps[0].at > timedelta(hours=25)
    times = tuple(f"{each.at:{'%m-%d %H:%M' if days else '%H:%M'}}" for each in timeline.steps)
    return Chart(key, title, f"{unit}; " + "; ".join(summaries), unit, _lines(scale), times, drawn, empty)


def _scale(highest: float) -> tuple[float, ...]:
    """Return the values of the horizontal lines: at most 5, from 0, a round number apart, up to at least `highest`."""
    if not highest:
        return (0.0, 1.0)
    power = 10.0 ** (math.floor(math.log10(highest)) - 1)
    step = next(power * each for each in _ROUND if power * each * _MAX_STEPS >= highest)
    return tuple(step * number for number in range(math.ceil(highest / step) + 1))


def _lines(scale: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((value, HEIGHT - HEIGHT * value / scale[-1]) for value in scale)


def _paths(values: Sequence[float | None], top: float) -> tuple[str, str]:
    """Return the path through the values, with gaps where values are missing, and the path of isolated values."""
    lines: list[str] = []
    dots: list[str] = []
    across = WIDTH / max(1, len(values) - 1)
    for number, value in enumerate(values):
        if value is None:
            continue
        point = f"{number * across:.1f} {HEIGHT - HEIGHT * min(value, top) / top:.1f}"
        begins = number == 0 or values[number - 1] is None
        if begins and (number + 1 == len(values) or values[number + 1] is None):
            dots.append(f"M{point}h0.1")
        else:
            lines.append(f"{'M' if begins else 'L'}{point}")
    return "".join(lines), "".join(dots)
