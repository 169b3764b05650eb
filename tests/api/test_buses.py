"""The API's buses while their rule files change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from api.server import Installation

from eventbridge.api.buses import Buses, BusWriter
from eventbridge.cli.runtime import open_runtime
from eventbridge.errors import BusError


def test_calls_on_a_changed_bus_get_a_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that found the bus before and after a change run together: each gets a response by the new bus."""
    made = Installation(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("eventbridge.api.buses.CACHED_SECONDS", -1.0)

    async def publish() -> int:
        with open_runtime() as runtime:
            buses = Buses(runtime)
            before, topic = await buses.find("orders", None)
            await buses.publish(before, topic, [(b"first", None)])
            made.write_rules(", max_backlog: 1000")
            after, _ = await buses.find("orders", None)
            assert before != after
            calls = [buses.publish(bus, topic, [(b"later", None)]) for bus in (after, before) * 10]
            looks = [buses.check_pressure(bus) for bus in (after, before) * 10]
            positions = await asyncio.wait_for(asyncio.gather(*calls, *looks), 60)
            await buses.close()
            return len([each for each in positions if each])

    assert asyncio.run(publish()) == 20
    assert len(made.bodies()) == 21


def test_a_closed_writer_takes_no_call() -> None:
    """It would never get a response."""

    def never() -> None:
        raise AssertionError("nothing is published")

    writer = BusWriter("orders", never)  # type: ignore[arg-type]
    writer.close()

    with pytest.raises(BusError, match="Nothing was published"):
        writer.publish([(b"{}", None)], "placed")
