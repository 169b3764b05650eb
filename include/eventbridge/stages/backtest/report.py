"""What a backtest reports, as a document: JSON for programs."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, json

from eventbridge.model.backtested import Change, EventSample, Failure, OutputSample


class Peak(Struct, frozen=True):
    """How many events were matched in the time that begins at `at`."""

    at: datetime
    matched: int


class Hour(Struct, frozen=True):
    """Events that were landed in the hour that begins at `at`, and how many of them were matched."""

    at: datetime
    landed: int
    matched: int


class TargetReport(Struct, frozen=True):
    """What one target of a rule would receive, and what would fail."""

    target: str
    rendered: int
    failed: int
    failures: tuple[Failure, ...]
    samples: tuple[OutputSample, ...]


class RuleReport(Struct, frozen=True, kw_only=True):
    """What one rule matches: in all, by hour, a second on average, in its largest minute; and its targets.

    `left_out` events were not looked at whole, as `left_out_why` says: its budget was spent, or Spark cannot make sense
    of its SQL. They are in no other number.
    """

    rule: str
    version: str
    matched: int
    left_out: int
    left_out_why: str
    rate_per_second: float
    largest_minute: Peak | None
    hours: tuple[Hour, ...]
    targets: tuple[TargetReport, ...]


class TargetDifference(Struct, frozen=True):
    """Events that both rules match and of which a target would receive something else by B; `only_in` A or B: "both".

    A target that only one of the rules has is not compared.
    """

    target: str
    only_in: str
    changed: int
    samples: tuple[Change, ...]


class PairReport(Struct, frozen=True, kw_only=True):
    """How rule `b` of B differs from rule `a` of A; `left_out` events are compared by neither."""

    a: str
    b: str
    a_version: str
    b_version: str
    both: int
    gained: int
    lost: int
    left_out: int
    left_out_why: str
    gained_samples: tuple[EventSample, ...]
    lost_samples: tuple[EventSample, ...]
    targets: tuple[TargetDifference, ...]


class BacktestReport(Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}):
    """What a candidate makes of a part of the archive; times in UTC, those of events when they were landed."""

    format: int = 1
    backtest_id: str
    made_at: datetime
    candidate: str
    bus: str
    since: datetime
    until: datetime
    files: int
    events: int
    rules: tuple[RuleReport, ...]


class DiffReport(Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}):
    """How candidate B differs from A over a part of the archive; rules that only one of them has are named."""

    format: int = 1
    backtest_id: str
    made_at: datetime
    a: str
    b: str
    bus: str
    since: datetime
    until: datetime
    files: int
    events: int
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    pairs: tuple[PairReport, ...]


def to_json(report: BacktestReport | DiffReport) -> str:
    """Return a report as indented JSON."""
    return json.format(json.encode(report), indent=2).decode()
