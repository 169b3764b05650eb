"""Passes OUTCOME rows from a push's runs, which receive responses, to the collector, which writes them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from eventbridge.delivery.outstanding import Item
from eventbridge.model.outcome import DELIVERED, DeadLettered, Outcome, Response, RetryAt
from eventbridge.store import schemas

_NOTHING = (None, None, None)


class OutcomeRow(NamedTuple):
    """A row of the OUTCOME schema, with the columns in order."""

    delivery_id: bytes
    rule: str
    target: str
    attempt: int
    sent: bool
    started_at: datetime
    duration_ms: float
    outcome: str
    due_at: datetime | None = None
    reason: str | None = None
    code: int | None = None
    error_class: str | None = None
    error: str | None = None
    response_head: bytes | None = None


def outcome_row(item: Item, outcome: Outcome, response: Response) -> OutcomeRow:
    """Return the row for an attempt."""
    due_at, reason, detail = outcome_fields(outcome)
    return OutcomeRow(
        item.delivery_id,
        item.rule,
        item.target,
        item.attempts,
        True,
        response.started_at,
        response.duration_ms,
        outcome.status,
        due_at,
        reason,
        response.code,
        response.error_class,
        response.error or detail,
        response.response_head,
    )


def unsent_row(item: Item, outcome: Outcome, now: datetime) -> OutcomeRow:
    """Return the row for a decision without an attempt."""
    due_at, reason, detail = outcome_fields(outcome)
    name = outcome.status
    return OutcomeRow(
        item.delivery_id, item.rule, item.target, item.attempts, False, now, 0.0, name, due_at, reason, error=detail
    )


def outcome_fields(outcome: Outcome) -> tuple[datetime | None, str | None, str | None]:
    """Return the due time, reason and detail of an outcome, each None if it has none."""
    if outcome is DELIVERED:
        return _NOTHING
    if isinstance(outcome, RetryAt):
        return outcome.due_at, outcome.reason, None
    if isinstance(outcome, DeadLettered):
        return None, outcome.reason, outcome.detail
    return None, None, None


def outcome_table(rows: Sequence[OutcomeRow]) -> pa.Table:
    """Return rows as a table with the OUTCOME schema."""
    if not rows:
        return schemas.OUTCOME.empty_table()
    columns = zip(zip(*rows, strict=True), schemas.OUTCOME, strict=True)
    return pa.Table.from_arrays([pa.array(values, field.type) for values, field in columns], schema=schemas.OUTCOME)


def accepted_rows(ids: Iterable[bytes], like: OutcomeRow) -> Iterator[OutcomeRow]:
    """Yield the rows for deliveries that were accepted with one response; `like` is the row for one of them."""
    return map(OutcomeRow._make, ((delivery_id, *like[1:]) for delivery_id in ids))


def alike_table(ids: pa.Array, like: OutcomeRow) -> pa.Table:
    """Return, as a table, the rows for deliveries that share one response and outcome; `like` is the row for one of
    them."""
    same = [
        pa.repeat(pa.scalar(value, field.type), len(ids))
        for value, field in zip(like[1:], list(schemas.OUTCOME)[1:], strict=True)
    ]
    return pa.Table.from_arrays([ids, *same], schema=schemas.OUTCOME)


def accepted_row(rule: str, target: str, attempt: int, response: Response) -> OutcomeRow:
    """Return the row for an accepted delivery, without the delivery's id."""
    return OutcomeRow(
        b"",
        rule,
        target,
        attempt,
        True,
        response.started_at,
        response.duration_ms,
        "delivered",
        code=response.code,
        response_head=response.response_head,
    )


def alike_row(of: tuple[str, str, int], outcome: Outcome, response: Response | None, now: datetime) -> OutcomeRow:
    """Return the row for a delivery, without the delivery's id.

    `of` is the rule, the target and the number of attempts. `response` is None if there was no attempt.
    """
    due_at, reason, detail = outcome_fields(outcome)
    name = outcome.status
    if response is None:
        return OutcomeRow(b"", *of, False, now, 0.0, name, due_at, reason, error=detail)
    row = OutcomeRow(b"", *of, True, response.started_at, response.duration_ms, name, due_at, reason)
    return row._replace(
        code=response.code,
        error_class=response.error_class,
        error=response.error or detail,
        response_head=response.response_head,
    )


class OutcomeRows:
    """Queues the rows of a push's runs; the collector takes them one segment at a time.

    Any thread may add rows, and one thread takes them. A single row does not wake the collector, because waking it
    would take longer than adding the row. The collector wakes once there are `enough` single rows for a segment, once a
    table brings all rows to `enough`, or when `wake` is called.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._rows: deque[OutcomeRow] = deque()
        self._tables: deque[pa.Table] = deque()
        self._lock = threading.Lock()
        self._in_tables = 0
        self._woken = threading.Event()

    def __len__(self) -> int:
        return len(self._rows) + self._in_tables

    def wake(self) -> None:
        """Wake the collector, even if there are few rows."""
        self._woken.set()

    def put(self, row: OutcomeRow) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= self._enough:
            self._woken.set()

    def put_all(self, rows: Iterable[OutcomeRow]) -> None:
        """Add rows."""
        self._rows.extend(rows)
        if len(self._rows) >= self._enough:
            self._woken.set()

    def put_table(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        with self._lock:
            self._tables.append(table)
            self._in_tables += table.num_rows
        if len(self) >= self._enough:
            self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; return True as soon as the collector is woken, else False."""
        woken = len(self) >= self._enough or self._woken.wait(seconds)
        self._woken.clear()
        return woken

    def take(self) -> tuple[list[pa.Table], list[OutcomeRow]]:
        """Remove and return the oldest tables and rows, up to about a segment; tables are never split."""
        tables: list[pa.Table] = []
        count = 0
        with self._lock:
            while self._tables and count < self._enough:
                tables.append(self._tables.popleft())
                count += tables[-1].num_rows
            self._in_tables -= count
        return tables, [self._rows.popleft() for _ in range(min(max(0, self._enough - count), len(self._rows)))]
