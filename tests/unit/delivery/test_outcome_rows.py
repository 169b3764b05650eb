"""Rows from runs to the collector: when it wakes, and what a segment contains."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pyarrow as pa

from eventbridge.delivery.rows import OutcomeRow, OutcomeRows, accepted_row, accepted_rows, alike_table, outcome_table
from eventbridge.model.outcome import Response
from eventbridge.store import schemas

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIKE = accepted_row("orders", "lines", 4, Response(True, AT, 2.0))


def row(number: int) -> OutcomeRow:
    return OutcomeRow(number.to_bytes(16), "orders", "crm", 1, True, AT, 1.5, "delivered", code=200, response_head=b"")


def test_a_segment_has_the_oldest_rows_and_no_more_than_are_enough() -> None:
    """The rest waits for the next one."""
    rows = OutcomeRows(3)
    rows.put_all(row(number) for number in range(5))

    assert [rows.take()[1], rows.take()[1], rows.take()[1]] == [[row(0), row(1), row(2)], [row(3), row(4)], []]


def test_a_segment_has_whole_tables_first() -> None:
    """Their rows count: a segment has no more tables, and no more rows beside them, than are enough."""
    rows = OutcomeRows(9)
    table = alike_table(pa.array([bytes(16)] * 7, pa.binary(16)), LIKE)
    rows.put(row(1))
    rows.put(row(2))
    rows.put(row(3))
    rows.put_table(table)
    few = OutcomeRows(1)
    few.put(row(1))
    few.put_table(table)
    few.put_table(table)

    assert (len(rows), len(few)) == (10, 15)
    assert rows.take() == ([table], [row(1), row(2)])
    assert rows.take() == ([], [row(3)])
    assert [few.take(), few.take(), few.take()] == [([table], []), ([table], []), ([], [row(1)])]


def test_rows_and_tables_have_the_schema_of_segments() -> None:
    """Column by column."""
    table = alike_table(pa.array([bytes(16)] * 2, pa.binary(16)), LIKE)

    assert table.schema == outcome_table([row(1)]).schema == schemas.OUTCOME
    assert (
        table.to_pylist()[1]
        == OutcomeRow(bytes(16), "orders", "lines", 4, True, AT, 2.0, "delivered", response_head=b"")._asdict()
    )
    assert outcome_table(list(accepted_rows([bytes(16)] * 2, LIKE))) == table


def test_one_row_wakes_no_thread_enough_rows_do() -> None:
    """Waking a thread for every row would cost more than the row."""
    rows = OutcomeRows(2)
    rows.put(row(1))
    rows.wait(0.01)  # returns because the time is over
    woken = threading.Event()
    waiting = threading.Thread(target=lambda: (rows.wait(30), woken.set()))
    waiting.start()
    rows.put(row(2))

    assert woken.wait(10)
    waiting.join()
    began = time.monotonic()
    rows.wait(30)
    assert time.monotonic() - began < 10, "with enough rows no thread waits"


def test_the_collector_can_be_woken_however_few_rows_there_are() -> None:
    """The engine does so when the last run has ended."""
    rows = OutcomeRows(1_000)
    assert not rows.wait(0.01)
    rows.wake()
    began = time.monotonic()
    assert rows.wait(30)

    assert time.monotonic() - began < 10
