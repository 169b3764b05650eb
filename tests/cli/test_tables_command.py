"""`eventbridge tables register`: the files of the archive are tables of an Iceberg catalog, and nothing is copied."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli.conftest import Result, Shop
from services.iceberg import OwnCatalog, sqlite_catalog

from eventbridge.config.settings import Settings
from eventbridge.runtime import open as runtime_open
from eventbridge.runtime.open import open_runtime

Run = Callable[..., Result]


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
    """A repetition changes nothing, and a later one adds what is new; no file of the store is changed or copied."""
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

    assert eventbridge("events", "publish", "orders", shop.orders(100, id="o9")).code == 0
    shop.deliver()
    eventbridge("tables", "register", "lake")
    assert sorted(each["event_id"] for each in lake.rows("eventbridge.events_orders")) == ["o0", "o1", "o9"]


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
