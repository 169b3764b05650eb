"""Selects dead letters for a command or a redrive: by rule, target, reason, error text, time, names, SQL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from eventbridge.errors import UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.runtime.time_range import read_time
from eventbridge.similar_names import nearest

#: The reasons why a delivery, or an event without deliveries, is dead-lettered.
REASONS = (
    "maximum_retry_attempts",
    "maximum_event_age",
    "non_retryable",
    "transform_failed",
    "route_failed",
    "malformed",
    "target_gone",
    "rule_removed",
    "deadline_missed",
)

#: The reasons whose `detail` may quote the event, and therefore counts as a payload.
QUOTING_REASONS: Final = frozenset({"transform_failed", "route_failed", "malformed"})

#: Columns of a dead letter that a selection reads; a selection by error text also reads `attempts`.
SELECTED_BY = (
    "delivery_id", "rule", "target", "reason", "detail", "bus", "topic", "broker", "partition_id", "offset",
    "arrived_at", "last_attempt_at", "source", "event_id",
)  # fmt: skip

#: Columns that distinguish the dead letters of one delivery, or of one event without deliveries.
MARKED_BY: Final = ("batch_id", "topic", "broker", "partition_id", "offset")
#: The names of times in JSON; `from` is a keyword of Python.
_TIMES: Final = {"since": "from", "until": "to"}


@dataclass(frozen=True)
class Selection:
    """The conditions on dead letters: one is selected if it meets every field that is set; if none is set, all are.

    `error` is a string that the detail, or the error of an attempt, contains; case is ignored. `since` (included) and
    `until` (excluded) refer to the last attempt or, without one, to the arrival of the event. A record fits `names` if
    one of them is its name as `name_of` returns it, its delivery id or the beginning of that, or its position
    `[bus/]topic/partition/offset`. `sql` is a condition in DuckDB's SQL. If `payloads` is False, text that may quote an
    event is not searched for `error`.
    """

    rule: str | None = None
    target: str | None = None
    reason: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    names: tuple[str, ...] = ()
    sql: str | None = None
    payloads: bool = True

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record meets every condition but `sql`, which is evaluated elsewhere.

        The record needs the columns SELECTED_BY, `batch_id` and, for a selection by error text, `attempts`.
        """
        at = record["last_attempt_at"] or record["arrived_at"]
        return (
            self.rule in (None, record["rule"])
            and self.target in (None, record["target"])
            and self.reason in (None, record["reason"])
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (not self.names or any(is_named(record, name) for name in self.names))
            and (self.error is None or self._mentions(record, self.error.casefold()))
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON values; `since` and `until` are `from` and `to`."""
        values: dict[str, Any] = {key: value for key, value in vars(self).items() if value not in (None, ())}
        if self.payloads:
            del values["payloads"]
        return {
            _TIMES.get(key, key): value.isoformat()
            if isinstance(value, datetime)
            else list(value)
            if key == "names"
            else value
            for key, value in values.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Selection:
        """Read a document that `as_json` wrote."""
        times = {key: datetime.fromisoformat(values[name]) for key, name in _TIMES.items() if name in values}
        others = {key: value for key, value in values.items() if key not in _TIMES.values()}
        return cls(**{**others, **times, "names": tuple(values.get("names", ()))})

    @property
    def chooses(self) -> bool:
        """Whether any field is set."""
        return self != Selection(payloads=self.payloads)

    def _mentions(self, record: Mapping[str, Any], text: str) -> bool:
        if not self.payloads and record["reason"] in QUOTING_REASONS:
            return False
        texts = [record["detail"], *(each[key] for each in record["attempts"] for key in ("error_class", "error"))]
        return any(text in each.casefold() for each in texts if each)


@dataclass(frozen=True)
class WrittenSelection:
    """A selection as a person wrote it; an empty string counts as not written.

    Times are ISO 8601, in UTC unless they have an offset, or ages such as `2h`.
    """

    rule: str | None = None
    target: str | None = None
    reason: str | None = None
    error: str | None = None
    since: str | None = None
    until: str | None = None
    names: Sequence[str] = ()
    sql: str | None = None

    def read(self, now: datetime, *, payloads: bool = True) -> Selection:
        """Return the selection; `payloads` is whether the caller may see payloads.

        Raises UserError for an unknown reason, an invalid time, or an invalid name.
        """
        if self.reason and self.reason not in REASONS:
            hint = nearest(self.reason, REASONS) or "Reasons: " + ", ".join(REASONS)
            raise UserError(f"unknown reason {self.reason!r}. {hint}")
        return Selection(
            rule=self.rule or None,
            target=self.target or None,
            reason=self.reason or None,
            error=self.error or None,
            since=read_time("from", self.since, now),
            until=read_time("to", self.until, now),
            names=tuple(normalize_name(name) for name in self.names if name.strip()),
            sql=self.sql.strip() or None if self.sql else None,
            payloads=payloads,
        )


def normalize_name(name: str) -> str:
    """Return the name of a dead letter in the form that is compared. Raises UserError for an invalid name."""
    wanted = name.strip().lower()
    if re.fullmatch(r"([0-9a-f][0-9a-f-]*|/?[^/]+/([^/]+/)+[^/]+?)(@[0-9a-f]{8})?", wanted):
        return wanted
    raise UserError(
        f"{name!r} cannot be the name of a dead letter. Write a name that `eventbridge dead-letters list` shows, a "
        "delivery id or its beginning, or <topic>/<partition>/<offset> of the event."
    )


def is_named(record: Mapping[str, Any], wanted: str) -> bool:
    """Return whether a record has a name; `wanted` comes from `normalize_name`, and may lack the part from `@` on."""
    about, mark = _parts(wanted)
    if mark is not None and mark != mark_of(record):
        return False
    if "/" in about:
        return f"/{position_of(record)}".lower().endswith(f"/{about.lstrip('/')}")
    return record["delivery_id"] is not None and record["delivery_id"].hex().startswith(about.replace("-", ""))


def name_of(record: Mapping[str, Any]) -> str:
    """Return the unique name of a dead letter: `subject_of`, `@` and `mark_of`, because a delivery can have several.

    The record needs `batch_id` and the columns of a position.
    """
    return f"{subject_of(record)}@{mark_of(record)}"


def subject_of(record: Mapping[str, Any]) -> str:
    """Return the delivery id or, for an event without deliveries, `<bus>/<topic>/<partition>/<offset>`."""
    return position_of(record) if record["delivery_id"] is None else delivery_id_text(record["delivery_id"])


def mark_of(record: Mapping[str, Any]) -> str:
    """Return eight hex digits that distinguish the dead letters of a delivery: a hash of batch and position.

    `store.queries` computes the same in SQL.
    """
    position = "/".join(str(record[part]) for part in MARKED_BY)
    return hashlib.sha256(position.encode()).hexdigest()[:8]


def _parts(wanted: str) -> tuple[str, str | None]:
    found = re.fullmatch(r"(.*)@([0-9a-f]{8})", wanted, re.DOTALL)
    return (found[1], found[2]) if found else (wanted, None)


def position_of(record: Mapping[str, Any]) -> str:
    """Return the position of a dead letter's event, `<bus>/<topic>/[<broker>/]<partition>/<offset>`."""
    parts = (record["bus"], record["topic"], record["broker"], str(record["partition_id"]), str(record["offset"]))
    return "/".join(part for part in parts if part)
