"""Somebody publishes faster than a bus takes events: what waits for the bus is bounded, and loses nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from api.application import application
from api.server import Installation, order

from eventbridge.api import buses, middleware
from eventbridge.api.buses import BusWriter
from eventbridge.api.refusal import CallRefused
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus

WAIT = 20
EVENT_BYTES = 100_000
#: Events that fit into the limits of these tests, and those that are published.
FIT = 5
CALLS = 12


def test_a_bus_holds_a_limited_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once full, a writer refuses calls; it publishes what it accepted, and then accepts calls again."""
    monkeypatch.setattr(buses, "MAX_QUEUED_BYTES", FIT * EVENT_BYTES)
    may_open = threading.Event()

    def opened() -> EmbeddedBus:
        may_open.wait(WAIT)
        return EmbeddedBus(tmp_path, "orders", topics=("placed",), partitions=1, clock=lambda: datetime.now(UTC))

    writer = BusWriter("orders", opened)
    accepted = [writer.publish([(b"x" * EVENT_BYTES, None)], "placed") for _ in range(FIT)]
    with pytest.raises(CallRefused, match="Nothing was published") as refused:
        writer.publish([(b"more", None)], "placed")
    may_open.set()
    offsets = [offset for call in accepted for _, offset in call.result(WAIT)]
    ((_, later),) = writer.publish([(b"later", None)], "placed").result(WAIT)
    writer.close()

    assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})
    assert [*offsets, later] == list(range(FIT + 1))


def test_inflated_bodies_count_until_their_calls_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of all bodies, a call gets 503, and each event with a 200 is on the bus, and no other one."""
    monkeypatch.setattr(middleware, "MAX_HELD_BYTES", (FIT + 1) * EVENT_BYTES)
    may_open = threading.Event()
    open_publisher = Runtime.open_publisher

    def opened(*given: Any) -> Any:
        assert may_open.wait(WAIT)
        return open_publisher(*given)

    monkeypatch.setattr(Runtime, "open_publisher", opened)
    made = Installation(tmp_path)

    async def publish() -> list[httpx.Response]:
        async with application(made, monkeypatch) as client:
            headers = {"content-type": "application/cloudevents+json", "content-encoding": "gzip"}

            async def call(number: int) -> httpx.Response:
                content = gzip.compress(json.dumps(order(number, data="x" * EVENT_BYTES)).encode())
                return await client.post("/v1/buses/orders/events", content=content, headers=headers)

            calls = [asyncio.create_task(call(number)) for number in range(CALLS)]
            async with asyncio.timeout(WAIT):
                while sum(each.done() for each in calls) < CALLS - FIT:
                    await asyncio.sleep(0.01)
            may_open.set()
            return await asyncio.gather(*calls)

    responses = asyncio.run(publish())
    published = {f"o{number}" for number, each in enumerate(responses) if each.status_code == 200}
    refused = [each for each in responses if each.status_code == 503]

    assert (len(published), len(refused)) == (FIT, CALLS - FIT)
    assert all(each.headers["retry-after"] == "5" for each in refused)
    assert {json.loads(body)["id"] for body in made.bodies().values()} == published
