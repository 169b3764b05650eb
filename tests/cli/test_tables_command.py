"""`eventbridge tables register`: the files of the archive are tables of an Iceberg catalog, and nothing is copied."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from cli.conftest import Result, Shop
from services.iceberg import OwnCatalog, sqlite_catalog

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime import open as runtime_open
from eventbridge.runtime.open import open_runtime

Run = Callable[..., Result]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "register-archive.md"
(QUERY,) = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> OwnCatalog:
    """An empty catalog, to which the connection `lake` leads."""
    made = sqlite_catalog(tmp_path_factory.mktemp("lake"))
    monkeypatch.setenv("EVENTBRIDGE_CONN_LAKE", made.variable)
    return made


def sums(folder: Path) -> dict[Path, str]:
    """Return a checksum of each file below a folder."""
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def test_the_archive_is_read_through_the_catalog(shop: Shop, lake: OwnCatalog, eventbridge: Run) -> None:
    """A repetition changes nothing, and a later one adds what is new; no file of the store is changed or copied.

    The query on the page counts each delivery once, although two batches settled it.
    """
    lake.catalog.create_namespace("eventbridge")
    assert eventbridge("events", "publish", "orders", shop.orders(500, 1500)).code == 0
    shop.deliver()
    before = sums(shop.folder / "home" / "store")
    first = eventbridge("tables", "register", "lake", "-o", "json")
    again = eventbridge("tables", "register", "lake")
    assert (first.code, first.err, again.code) == (0, "", 0)

    assert [(each["table"], each["added"] > 0, each["removed"]) for each in first.json] == [
        ("eventbridge.events_orders", True, 0), ("eventbridge.deliveries", True, 0),
        ("eventbridge.settlements", True, 0),
    ]  # fmt: skip
    assert [line.split()[2:] for line in again.out.splitlines() if "eventbridge." in line] == [["0", "0"]] * 3
    assert sums(shop.folder / "home" / "store") == before
    assert lake.files() == set()
    events = lake.rows("eventbridge.events_orders")
    assert sorted(each["event_id"] for each in events) == ["o0", "o1"]
    assert b'"amount": 1500' in next(each["body"] for each in events if each["event_id"] == "o1")
    assert {(each["rule"], each["target"]) for each in lake.rows("eventbridge.deliveries")} == {
        ("all-orders", "archive"), ("big-orders", "accounts"), ("big-orders", "note"),
    }  # fmt: skip
    assert "delivered" in {each["status"] for each in lake.rows("eventbridge.settlements")}

    assert eventbridge("events", "publish", "orders", shop.orders(500, 1500)).code == 0
    shop.deliver()
    eventbridge("tables", "register", "lake")
    assert sorted(each["event_id"] for each in lake.rows("eventbridge.events_orders")) == ["o0", "o0", "o1", "o1"]
    settled = pa.Table.from_pylist(lake.rows("eventbridge.settlements"))
    assert settled.num_rows == 8
    with duckdb.connect() as database:
        database.register("settled", settled)
        database.execute("CREATE SCHEMA eventbridge; CREATE TABLE eventbridge.settlements AS FROM settled")
        assert sorted(database.execute(QUERY).fetchall()) == [
            ("all-orders", "archive", "delivered", 2), ("big-orders", "accounts", "delivered", 1),
            ("big-orders", "note", "dead_lettered", 1),
        ]  # fmt: skip


def test_what_retention_removes_is_dropped(
    shop: Shop, lake: OwnCatalog, eventbridge: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call drops the removed files, so that the tables can be read again; new files are added as ever."""
    lake.catalog.create_namespace("eventbridge")
    assert eventbridge("events", "publish", "orders", shop.orders(500, 1500)).code == 0
    shop.deliver()
    eventbridge("tables", "register", "lake")
    opened = open_runtime

    def open_later(settings: Settings, connections: Any, *_: Any, **__: Any) -> Any:
        return opened(settings, connections, lambda: datetime.now(UTC) + timedelta(days=50))

    with monkeypatch.context() as later:
        later.setattr(runtime_open, "open_runtime", open_later)
        assert eventbridge("maintain").code == 0
    found = eventbridge("tables", "register", "lake", "-o", "json")

    assert found.code == 0, found.err
    assert {each["table"]: (each["files"], each["removed"] > 0) for each in found.json} == {
        "eventbridge.events_orders": (0, True),
        "eventbridge.deliveries": (0, True),
        "eventbridge.settlements": (0, True),
    }
    assert lake.rows("eventbridge.deliveries") == []


def test_errors_say_what_to_do(shop: Shop, lake: OwnCatalog, eventbridge: Run) -> None:
    """A missing namespace, a foreign table of the same name, a connection that is not defined."""
    assert eventbridge("events", "publish", "orders", shop.orders(500)).code == 0
    shop.deliver()
    missing = eventbridge("tables", "register", "lake")
    lake.catalog.create_namespace("eventbridge")
    lake.catalog.create_table("eventbridge.deliveries", pa.schema([("id", pa.string())]))
    foreign = eventbridge("tables", "register", "lake")
    undefined = eventbridge("tables", "register", "lak")

    assert (missing.code, foreign.code, undefined.code) == (2, 2, 2)
    assert "There is no namespace 'eventbridge' in the catalog of 'lake'. Create it." in missing.err
    assert "eventbridge.deliveries exists, and is not one of the archive" in foreign.err
    assert "Connection 'lak' is not defined" in undefined.err


def test_a_compacted_day_has_the_same_rows(
    shop: Shop, lake: OwnCatalog, eventbridge: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The larger files are registered in place of those that they contain, with all statistics and rows."""
    lake.catalog.create_namespace("eventbridge")
    for _ in range(2):
        assert eventbridge("events", "publish", "orders", shop.orders(500, 1500)).code == 0
        shop.deliver()
    opened = open_runtime

    def open_later(settings: Settings, connections: Any, *_: Any, **__: Any) -> Any:
        return opened(settings, connections, lambda: datetime.now(UTC) + timedelta(days=3))

    monkeypatch.setattr(runtime_open, "open_runtime", open_later)
    assert eventbridge("events", "publish", "orders", shop.orders(700)).code == 0
    settings, connections = Settings.from_mapping(shop.environ), connections_from_environment(shop.environ)
    with closing(open_later(settings, connections)) as runtime:
        deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store), wait_seconds=0.0)
    before = [each["files"] for each in eventbridge("tables", "register", "lake", "-o", "json").json]
    tables = ["eventbridge.events_orders", "eventbridge.deliveries", "eventbridge.settlements"]
    rows = {name: sorted(map(str, lake.rows(name))) for name in tables}

    compacted = eventbridge("maintain", "-o", "json")
    after = [each["files"] for each in eventbridge("tables", "register", "lake", "-o", "json").json]

    assert compacted.json["compacted"] > 0
    assert all(now < then for now, then in zip(after, before, strict=True)), (before, after)
    assert {name: sorted(map(str, lake.rows(name))) for name in tables} == rows
