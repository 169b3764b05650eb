"""Defines the reports of backtests, and writes, lists and reads them as JSON documents."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, json

from eventbridge.errors import NotFoundError, StoreFileDamaged
from eventbridge.model.backtested import Change, EventSample, Failure, OutputSample
from eventbridge.model.cursor import read_name_cursor, write_name_cursor
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.layout import require_known_format

_SUFFIX = ".json"
_Read = TypeVar("_Read")


class Peak(Struct, frozen=True):
    """The number of matched events in the minute that begins at `at`."""

    at: datetime
    matched: int


class Hour(Struct, frozen=True):
    """The events landed in the hour that begins at `at`, and how many of them matched."""

    at: datetime
    landed: int
    matched: int


class TargetReport(Struct, frozen=True):
    """The number of events that one target of a rule would receive, and the number for which the target's transform
    fails."""

    target: str
    rendered: int
    failed: int
    failures: tuple[Failure, ...]
    samples: tuple[OutputSample, ...]


class RuleReport(Struct, frozen=True, kw_only=True):
    """The matches of one rule: in total, per hour, per second on average, in the largest minute; and its targets.

    `left_out` events were not evaluated, for the reason `left_out_why`: the rule's budget was spent, or Spark rejects
    its SQL. No other number includes them.
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
    """The events that both rules match and for which a target's output differs; `only_in` is "A", "B", or "" for both.

    A target that only one of the rules has is not compared.
    """

    target: str
    only_in: str
    changed: int
    samples: tuple[Change, ...]


class PairReport(Struct, frozen=True, kw_only=True):
    """The differences of rule `b` of B from rule `a` of A; `left_out` events are not compared."""

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
    """The result of a candidate for a part of the archive.

    Times are in UTC, and those of events are times of landing.
    """

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
    """The differences of candidate B from A over a part of the archive; rules that only one of them has are listed."""

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


class ReportHead(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}):
    """The subject of a report: a `candidate`, or `b` compared with `a`, over events that landed in a time range."""

    backtest_id: str
    made_at: datetime
    bus: str
    since: datetime
    until: datetime
    events: int
    candidate: str = ""
    a: str = ""
    b: str = ""


class ReportPage(msgspec.Struct, frozen=True):
    """A page of reports, newest days first; `cursor` leads to the next page, and is None on the last page."""

    reports: tuple[ReportHead, ...]
    cursor: str | None


def report_page(runtime: Runtime, limit: int, after: str | None = None) -> ReportPage:
    """Return at most `limit` reports after a cursor. Raises UserError for an invalid cursor."""
    (behind,) = read_name_cursor(after, 1) if after else ("",)
    paths = [each for each in reversed(_paths(runtime)) if not behind or each < behind]
    shown = paths[:limit]
    heads = [_decode(runtime, path, ReportHead) for path in shown]
    cursor = write_name_cursor(shown[-1]) if len(paths) > len(shown) else None
    return ReportPage(tuple(sorted(heads, key=lambda each: each.made_at, reverse=True)), cursor)


def find_report(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return the report whose id begins with `name`, as JSON. Raises NotFoundError if there is none, or several."""
    found = [path for path in _paths(runtime) if name and path.rpartition("/")[2].startswith(name.lower())]
    if len(found) != 1:
        how_many = f"{len(found)} reports begin with" if found else "there is no report of a backtest"
        raise NotFoundError(f"{how_many} {name!r}. `eventbridge rules backtest --keep` stores a report")
    report = _decode(runtime, found[0], dict[str, Any])
    require_known_format(found[0], report.get("format"))
    return report


def _paths(runtime: Runtime) -> list[str]:
    return [path for path in runtime.store.list(layout.BACKTEST_REPORTS) if path.endswith(_SUFFIX)]


def _decode(runtime: Runtime, path: str, kind: type[_Read]) -> _Read:
    try:
        return msgspec.json.decode(runtime.store.get(path), type=kind)
    except msgspec.MsgspecError as error:
        raise StoreFileDamaged(f"{path!r} is not the report of a backtest: {error}. Remove it") from error
