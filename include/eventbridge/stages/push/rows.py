"""Rows of schema OUTCOME on their way from the runs of a push, which have the answers, to what writes them down."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from eventbridge.model.answer import Answer
from eventbridge.model.outcome import DELIVERED, DeadLettered, Outcome, RetryAt
from eventbridge.stages.push.pending import Item
from eventbridge.store import schemas

_NOTHING = (None, None, None)


class OutcomeRow(NamedTuple):
    """A row of schema OUTCOME, its columns in their order."""

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


def outcome_row(item: Item, outcome: Outcome, answer: Answer) -> OutcomeRow:
    """Return the row for an attempt."""
    due_at, reason, detail = _said(outcome)
    return OutcomeRow(
        item.delivery_id,
        item.rule,
        item.target,
        item.attempts,
        True,
        answer.started_at,
        answer.duration_ms,
        type(outcome).__name__,
        due_at,
        reason,
        answer.code,
        answer.error_class,
        answer.error or detail,
        answer.response_head,
    )


def unsent_row(item: Item, outcome: Outcome, now: datetime) -> OutcomeRow:
    """Return the row for a decision that was made without an attempt."""
    due_at, reason, detail = _said(outcome)
    name = type(outcome).__name__
    return OutcomeRow(
        item.delivery_id, item.rule, item.target, item.attempts, False, now, 0.0, name, due_at, reason, error=detail
    )


def _said(outcome: Outcome) -> tuple[datetime | None, str | None, str | None]:
    if outcome is DELIVERED:
        return _NOTHING
    if isinstance(outcome, RetryAt):
        return outcome.due_at, outcome.reason, None
    if isinstance(outcome, DeadLettered):
        return None, outcome.reason, outcome.detail
    return None, None, None


def outcome_table(rows: Sequence[OutcomeRow]) -> pa.Table:
    """Return rows as a table of schema OUTCOME."""
    if not rows:
        return schemas.OUTCOME.empty_table()
    columns = zip(zip(*rows, strict=True), schemas.OUTCOME, strict=True)
    return pa.Table.from_arrays([pa.array(values, field.type) for values, field in columns], schema=schemas.OUTCOME)


def accepted_table(ids: pa.Array, rule: str, target: str, attempt: int, answer: Answer) -> pa.Table:
    """Return the rows of deliveries that one answer accepted, all at the same attempt."""
    of_all = OutcomeRow(
        b"",
        rule,
        target,
        attempt,
        True,
        answer.started_at,
        answer.duration_ms,
        "Delivered",
        code=answer.code,
        response_head=answer.response_head,
    )
    same = [
        pa.repeat(pa.scalar(value, field.type), len(ids))
        for value, field in zip(of_all[1:], list(schemas.OUTCOME)[1:], strict=True)
    ]
    return pa.Table.from_arrays([ids, *same], schema=schemas.OUTCOME)


class OutcomeRows:
    """Where the runs of a push put rows, and its collector takes them a segment at a time.

    Any thread may put, one takes. A row wakes nobody, as to wake a thread for each of them costs more than to make it;
    what wakes the collector is that there are `enough` for a segment, or a run that has ended.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._rows: deque[OutcomeRow] = deque()
        self._tables: deque[pa.Table] = deque()
        self._woken = threading.Event()

    def __len__(self) -> int:
        of_tables: int = sum(table.num_rows for table in list(self._tables))
        return len(self._rows) + of_tables

    def put(self, row: OutcomeRow) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= self._enough:
            self.wake()

    def put_all(self, rows: Iterable[OutcomeRow]) -> None:
        """Add rows."""
        self._rows.extend(rows)
        if len(self._rows) >= self._enough:
            self.wake()

    def put_table(self, table: pa.Table) -> None:
        """Add rows that are a table already."""
        self._tables.append(table)
        if len(self) >= self._enough:
            self.wake()

    def wake(self) -> None:
        """Let the collector look up."""
        if not self._woken.is_set():
            self._woken.set()

    def wait(self, seconds: float) -> None:
        """Return once there are enough rows, `wake` was called since the last time, or so many seconds have passed."""
        if len(self) < self._enough:
            self._woken.wait(seconds)
        self._woken.clear()

    def take(self) -> tuple[list[pa.Table], list[OutcomeRow]]:
        """Return the oldest tables and rows, enough for a segment if there are as many; a table is never cut."""
        tables: list[pa.Table] = []
        count = 0
        while self._tables and count < self._enough:
            tables.append(self._tables.popleft())
            count += tables[-1].num_rows
        return tables, [self._rows.popleft() for _ in range(min(max(0, self._enough - count), len(self._rows)))]
