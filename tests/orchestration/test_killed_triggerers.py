"""Airflow's triggerer is killed at every step of a watcher: Airflow still has one asset event for each event."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from services.airflow import PASSWORD, USER, AirflowServer
from services.triggerer import Triggerers

from eventbridge.sources.embedded.bus import EmbeddedBus

pytestmark = pytest.mark.timeout(300)

_DAGS = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher

from eventbridge.airflow import EventBridgeWatcher


def watched(name, *arguments, **more):
    return Asset(name, watchers=[AssetWatcher(name=name, trigger=EventBridgeWatcher("orders", *arguments, **more))])


for asset in (watched("placed", {"type": ["order.placed"]}), watched("all", batch=4)):
    with DAG(f"on_{asset.name}", schedule=[asset], is_paused_upon_creation=False):
        EmptyOperator(task_id="nothing")
"""

#: Where triggerers are killed: before and after a commit of the ledger, and an asset event that Airflow records. With
#: the first four commits the two watchers take their positions; the next ones are a claim, and moved positions.
_STEPS = [
    ("ledger.commit.done", 1),
    ("ledger.commit", 5),
    ("ledger.commit.done", 5),
    ("airflow.record", 1),
    ("airflow.record.done", 1),
    ("airflow.record.done", 3),
    ("ledger.commit", 6),
    ("ledger.commit.done", 6),
]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Triggerers]]:
    """Start Airflow's API server, and what starts triggerers."""
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "rules").mkdir()
    (folder / "rules" / "orders.yaml").write_text("buses:\n  orders: {source: {type: embedded, partitions: 2}}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__PLUGINS_FOLDER", str(folder / "plugins"))
        server = AirflowServer(folder / "airflow", _DAGS)
    with server:
        login = {"conn_type": "http", "host": "127.0.0.1", "port": server.port, "login": USER, "password": PASSWORD}
        environment = {
            **server.environment,
            "EVENTBRIDGE_HOME": str(folder / "home"),
            "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
            "AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW": json.dumps(login),
        }
        with Triggerers(environment, folder / "triggerers.log") as triggerers:
            yield folder, triggerers


def publish(folder: Path, first: int, count: int) -> list[str]:
    """Publish events whose ids are numbers, every other one `order.placed`, and return their ids."""
    (folder / "home" / "bus").mkdir(parents=True, exist_ok=True)
    bus = EmbeddedBus(
        folder / "home" / "bus", "orders", topics=("events",), partitions=2, clock=lambda: datetime.now(UTC)
    )
    with closing(bus):
        for number in range(first, first + count):
            event = {"specversion": "1.0", "id": str(number), "source": "/shop", "data": {"at": time.time()}}
            event["type"] = "order.placed" if number % 2 else "order.archived"
            bus.publish([(json.dumps(event).encode(), f"key {number % 3}")])
    return [str(number) for number in range(first, first + count)]


def recorded(folder: Path, asset: str) -> list[dict[str, Any]]:
    """Return the events in Airflow's asset events of an asset, in their order, each with the time of its recording."""
    with closing(sqlite3.connect(folder / "airflow" / "airflow.db", timeout=30)) as database:
        rows = database.execute(
            "SELECT e.extra, e.timestamp FROM asset_event e JOIN asset a ON a.id = e.asset_id WHERE a.name = ? "
            "ORDER BY e.id",
            (asset,),
        ).fetchall()
    return [
        {**event, "recorded": datetime.fromisoformat(f"{at}+00:00").timestamp()}
        for extra, at in rows
        for event in json.loads(extra)["payload"]["events"]
    ]


def until(triggerers: Triggerers, condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, triggerers.log()
        time.sleep(0.1)


def has_begun(folder: Path) -> bool:
    """Return whether both watchers have a position."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(folder / "home" / "ledger.sqlite", timeout=30)) as ledger:
        return ledger.execute("SELECT count(*) FROM asset_watcher").fetchall() == [(2,)]
    return False


def test_each_event_is_recorded_once_over_killed_triggerers(airflow: tuple[Path, Triggerers]) -> None:
    """Triggerers are killed one after the other, each at another step, while events are published."""
    folder, triggerers = airflow
    published: list[str] = []
    triggerers.start()
    until(triggerers, lambda: has_begun(folder))
    triggerers.kill()
    for point, number in _STEPS:
        triggerers.start(point, number)
        published += publish(folder, len(published), 5)
        until(triggerers, lambda: not triggerers.is_running)
    triggerers.start()
    published += publish(folder, len(published), 1)

    until(triggerers, lambda: published[-1] in [each["id"] for each in recorded(folder, "all")])
    time.sleep(2)  # nothing is recorded twice afterwards
    everything = [int(each["id"]) for each in recorded(folder, "all")]
    placed = [int(each["id"]) for each in recorded(folder, "placed")]
    assert sorted(everything) == list(range(len(published)))
    assert sorted(placed) == list(range(1, len(published), 2))
    for key in range(3):  # the events of a key are in one partition, so they keep their order
        assert [each for each in everything if each % 3 == key] == list(range(key, len(published), 3))


def test_an_asset_event_is_recorded_within_seconds(airflow: tuple[Path, Triggerers]) -> None:
    """The time from publishing to the asset event is that of Airflow's loop, about a second."""
    folder, triggerers = airflow
    if not triggerers.is_running:
        triggerers.start()
    until(triggerers, lambda: has_begun(folder))
    before = len(recorded(folder, "placed"))
    for number in range(40):
        publish(folder, 1_001 + 2 * number, 1)
        time.sleep(0.1)
    until(triggerers, lambda: len(recorded(folder, "placed")) == before + 40)

    took = sorted(each["recorded"] - each["data"]["at"] for each in recorded(folder, "placed")[before:])
    assert took[37] < 5, took  # 1.1 s on two busy cores; the limit leaves room for a machine that stalls
