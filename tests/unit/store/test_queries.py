"""SQL over dead letter files, and counts of values in events, through the store, wherever it is."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eventbridge.errors import StoreError, UserError
from eventbridge.policy.quality import FieldCounts
from eventbridge.store import schemas
from eventbridge.store.open import open_store
from eventbridge.store.parquet import read_table, write_table
from eventbridge.store.protocol import Store
from eventbridge.store.queries import count_fields, keys_where
from eventbridge.transform.jsonpath import parse_path

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "file":
        return open_store(tmp_path.as_uri())
    request.getfixturevalue("s3_server")
    return open_store(f"s3://s3@tests/{tmp_path.name}")


def dead_letter(number: int, **changes: Any) -> dict[str, Any]:
    """Return a dead letter."""
    return {
        "delivery_id": bytes([number] * 16), "rule": "orders", "rule_version": "1", "bus": "orders", "target": "crm",
        "topic": "placed", "broker": "", "partition_id": 0, "offset": number, "source": "/shop",
        "event_id": str(number),
        "event": b'{"data": {"amount": %d}}' % number, "request": None, "request_content_type": None,
        "request_headers": None, "reason": "non_retryable", "detail": None, "attempts": [], "arrived_at": AT,
        "first_attempt_at": None, "last_attempt_at": None, "batch_id": "batch-1",
    } | changes  # fmt: skip


@pytest.fixture
def written(store: Store) -> Callable[..., str]:
    """Write letters into a file of the store and return its path."""

    def write(name: str, *entries: dict[str, Any]) -> str:
        path = f"dead_letters/date=2026-03-01/{name}.parquet"
        write_table(store, path, pa.Table.from_pylist(list(entries), schema=schemas.DEAD_LETTER))
        return path

    return write


def test_a_condition_chooses_over_all_files(store: Store, written: Callable[..., str]) -> None:
    """Keys of all files come back, also by a condition on what is inside the event; only named files are seen."""
    files = [written("a", dead_letter(1), dead_letter(7)), written("b", dead_letter(9), dead_letter(2))]
    written("c", dead_letter(8))

    found = keys_where(partial(read_table, store), files, "(event->>'$.data.amount')::INT > 5")

    assert {key[-1] for key in found} == {7, 9}
    assert ("batch-1", "07070707-0707-0707-0707-070707070707@0e26fcb8", "placed", "", 0, 7) in found


def test_an_event_that_is_no_text_is_null(store: Store, written: Callable[..., str]) -> None:
    """Bytes that are no UTF-8 do not fail the query; the dead letter is chosen by its other columns."""
    file = written("a", dead_letter(1, event=b"\xff\xfe", delivery_id=None))

    assert keys_where(partial(read_table, store), [file], "event IS NULL") == {
        ("batch-1", "orders/placed/0/1@9fd3ef84", "placed", "", 0, 1)
    }


def test_half_of_a_surrogate_pair_is_no_lack_of_memory(store: Store, written: Callable[..., str]) -> None:
    """The condition is refused, and the next one is answered."""
    file = written("a", dead_letter(1))

    with pytest.raises(UserError, match="half of a surrogate pair"):
        keys_where(partial(read_table, store), [file], "reason = '\ud800'")
    assert len(keys_where(partial(read_table, store), [file], "true")) == 1


@pytest.mark.parametrize(
    "condition", ["true) LIMIT (1", "true) ORDER BY (reason", "false) UNION ALL SELECT * FROM dead_letters WHERE (true"]
)
def test_text_after_a_condition_is_refused(condition: str, store: Store, written: Callable[..., str]) -> None:
    """A redrive asks for each of its batches: of `LIMIT 1` it would take one after the other, until it had all."""
    file = written("a", dead_letter(1), dead_letter(2))

    with pytest.raises(UserError, match="is not an SQL condition"):
        keys_where(partial(read_table, store), [file], condition)


@pytest.mark.parametrize("late", ["read", "asked"])
def test_an_interrupt_ends_it_wherever_it_is(late: str, store: Store, written: Callable[..., str]) -> None:
    """While dead letters are read into the table, as while the condition is evaluated; no process continues with it."""
    path = written(
        "a", *(dead_letter(number % 200, event=b'{"text": "%s"}' % (b"x" * 2_000)) for number in range(1_000))
    )
    endless = "(SELECT sum(a.range * b.range % 7) FROM range(9000000) a, range(9000000) b) > 0"

    def interrupt() -> None:
        before = busy_seconds()
        while busy_seconds() < before + 0.3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)  # one: a second signal would end whatever test comes next

    def read(path: str, columns: Sequence[str]) -> pa.Table:
        table = read_table(store, path, columns)
        if interrupting.ident is None:
            interrupting.start()
        return pa.concat_tables([table] * 100) if late == "read" else table

    with pytest.raises(KeyboardInterrupt):
        keys_where(read, [path] * 100, "json_extract(event, '$.text') IS NULL" if late == "read" else endless)
    interrupting.join()

    assert busy_seconds() == 0


def busy_seconds() -> float:
    """Return the processor time of the running child processes that query DuckDB for this one."""
    found = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and b"sql_process import main;" in (folder / "cmdline").read_bytes():
                found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def test_a_missing_file_is_the_stores_error(store: Store) -> None:
    """Not an error in the condition."""
    with pytest.raises(StoreError, match="no file"):
        keys_where(partial(read_table, store), ["dead_letters/date=2026-03-01/gone.parquet"], "true")


def counted(path: str, *data: str) -> FieldCounts:
    """Return the counts of events with these data at a path."""
    bodies = [f'{{"id": "1", "data": {each}}}'.encode() for each in data]
    return count_fields(pa.table({"body": pa.array(bodies, pa.binary())}), {path: parse_path(path).steps})[path]


def test_null_and_missing_are_one() -> None:
    """A member that is null, one that is not there, and one below what is no object are null; false and 0 are not."""
    data = ['{"a": {"b": null}}', '{"a": {}}', "7", '{"a": {"b": false}}', '{"a": {"b": 0}}']

    assert counted("$.data.a.b", *data) == FieldCounts(5, 3, 1, 0.0, 0.0)


def test_only_numbers_have_a_range() -> None:
    """A text of digits is not a number; whole and broken ones are compared; what no double holds is none."""
    data = ['{"a": 2}', '{"a": -0.5}', '{"a": "9"}', '{"a": 18446744073709551616}', '{"a": 1e400}']

    assert counted("$.data.a", *data) == FieldCounts(5, 0, 3, -0.5, 2.0**64)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("$.data['a b']", '{"a b": 1}'),
        ("$.data['it\\'s']", '{"it\'s": 1}'),
        ("$.data['a/b']", '{"a/b": 1}'),
        ("$.data['a~1']", '{"a~1": 1}'),
        ("$.data['$.a']", '{"$.a": 1}'),
        ("$.data.a[1].b", '{"a": [0, {"b": 1}]}'),
        ("$.data.a[-1]", '{"a": [3, 2, 1]}'),
        ("$.data['1']", '{"1": 1}'),
    ],
)
def test_any_path_that_a_rule_may_write_leads_to_its_value(path: str, data: str) -> None:
    """Names with spaces, quotes, slashes, tildes or dollars, and elements from either end."""
    assert counted(path, data) == FieldCounts(1, 0, 1, 1.0, 1.0)


def test_counts_add_up() -> None:
    """Those of two files are the sums, and the range of both; no number has no range."""
    both = FieldCounts(2, 1, 1, 5.0, 5.0)
    both.add(FieldCounts(1, 0, 1, 3.0, 3.0))
    both.add(FieldCounts(1, 1, 0))

    assert both == FieldCounts(4, 2, 2, 3.0, 5.0)
