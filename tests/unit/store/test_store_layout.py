"""Where files lie in the store: the layout that design and docs promise, by the batch's time and never the writer's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from eventbridge.store import layout, schemas
from eventbridge.store.protocol import check_path

# 23:30 UTC, which is the next day where the clock is set to +05:30
PLANNED = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
ELSEWHERE = PLANNED.astimezone(timezone(timedelta(hours=5, minutes=30)))
PATHS = {
    "buffer": lambda at: layout.buffer("orders", at, "b1", "x9"),
    "deliveries": lambda at: layout.deliveries(at, "b1", "x9", "0"),
    "outcomes": lambda at: layout.outcomes(at, "b1", 3, 2, 7),
    "settlements": lambda at: layout.settlement(at, "b1"),
    "dead_letters": lambda at: layout.dead_letters(at, "b1", 0),
    "manifests": lambda at: layout.manifest(at, "b1"),
}


def test_each_kind_of_file_has_its_place() -> None:
    """The paths are those of the design, with date and hour of the batch."""
    assert [path(PLANNED) for path in PATHS.values()] == [
        "buffer/bus=orders/date=2026-11-21/hour=23/b1-x9.parquet",
        "deliveries/date=2026-11-21/b1/x9/part-0.parquet",
        "outcomes/date=2026-11-21/b1/3-2-7.parquet",
        "settlements/date=2026-11-21/b1.parquet",
        "dead_letters/date=2026-11-21/b1-0.parquet",
        "manifests/date=2026-11-21/b1.json",
    ]
    assert layout.settlement(PLANNED, "b1", supplement=2) == "settlements/date=2026-11-21/b1-2.parquet"
    assert layout.rule_set("abc") == "rulesets/abc.json"
    assert layout.runner("orders") == "runners/orders.json"


def test_the_day_is_that_of_utc() -> None:
    """The same moment gives the same path in every zone."""
    assert [path(ELSEWHERE) for path in PATHS.values()] == [path(PLANNED) for path in PATHS.values()]


def test_every_path_is_one_the_store_takes() -> None:
    """No path of the layout is refused by the store, and each folder of tables has its schema."""
    for folder, path in PATHS.items():
        assert check_path(path(PLANNED)).startswith(f"{folder}/")
        if path(PLANNED).endswith(".parquet"):
            assert schemas.schema_of(path(PLANNED)).names
