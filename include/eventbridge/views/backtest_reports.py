"""Lists the reports of backtests in the store, newest days first, and reads one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from eventbridge.errors import NotFoundError, StoreFileDamaged
from eventbridge.model.cursor import read_name_cursor, write_name_cursor
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.formats import require_known_format

_SUFFIX = ".json"


class ReportHead(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}):
    """The subject of a report: a `candidate`, or `b` compared with `a`, over the events that a bus landed in a time."""

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
    """A page of reports, newest days first, and the cursor of the next page; None: this is the last."""

    reports: tuple[ReportHead, ...]
    cursor: str | None


def report_page(runtime: Runtime, limit: int, after: str | None = None) -> ReportPage:
    """Return at most `limit` reports after a cursor; raises UserError for an invalid cursor."""
    (behind,) = read_name_cursor(after, 1) if after else ("",)
    paths = [each for each in reversed(_paths(runtime)) if not behind or each < behind]
    shown = paths[:limit]
    heads = [_decoded(runtime, path, ReportHead) for path in shown]
    cursor = write_name_cursor(shown[-1]) if len(paths) > len(shown) else None
    return ReportPage(tuple(sorted(heads, key=lambda each: each.made_at, reverse=True)), cursor)


def find_report(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return the report whose id begins with `name`, as JSON; raises NotFoundError if there is none, or several."""
    found = [path for path in _paths(runtime) if name and path.rpartition("/")[2].startswith(name.lower())]
    if len(found) != 1:
        how_many = f"{len(found)} reports begin with" if found else "there is no report of a backtest"
        raise NotFoundError(f"{how_many} {name!r}. `eventbridge rules backtest --keep` makes one")
    report = _decoded(runtime, found[0], dict[str, Any])
    require_known_format(found[0], report.get("format"))
    return report


def _paths(runtime: Runtime) -> list[str]:
    return [path for path in runtime.store.list(layout.BACKTEST_REPORTS) if path.endswith(_SUFFIX)]


_Read = TypeVar("_Read")


def _decoded(runtime: Runtime, path: str, kind: type[_Read]) -> _Read:
    try:
        return msgspec.json.decode(runtime.store.get(path), type=kind)
    except msgspec.MsgspecError as error:
        raise StoreFileDamaged(f"{path!r} is not the report of a backtest: {error}. Remove it") from error
