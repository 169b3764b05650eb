"""The trigger in the triggerer: it is restored from its serialization, shares one poll, and survives every error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.module_loading import import_string  # type: ignore[attr-defined]

from eventbridge.airflow import watcher
from eventbridge.airflow.watcher import Watcher


def test_a_trigger_is_restored_from_its_serialization() -> None:
    """`serialize` names the class and its arguments; the result serializes to the same."""
    path, arguments = Watcher("events_orders").serialize()
    again = import_string(path)(**arguments)

    assert isinstance(again, Watcher)
    assert again.serialize() == (path, arguments) == ("eventbridge.airflow.watcher.Watcher", {"subject": again.subject})


def test_all_subjects_share_one_poll() -> None:
    """The key of the shared stream is the same for every subject, and the hash that Airflow stores is not."""
    one, other = Watcher("events_orders"), Watcher("due_deliveries")

    assert one.shared_stream_key() == other.shared_stream_key() is not None
    assert Watcher.hash(*one.serialize()) != Watcher.hash(*other.serialize())


def test_a_trigger_fires_for_its_own_subject_only() -> None:
    """From the shared stream, each trigger takes the polls that start a run for its subject."""

    async def looks() -> AsyncIterator[list[str]]:
        for subjects in (["events_a"], ["events_a", "events_b"], ["events_b"]):
            yield subjects

    async def fired(subject: str) -> list[Any]:
        return [event.payload async for event in Watcher(subject).filter_shared_stream(looks())]

    assert asyncio.run(fired("events_b")) == [{"subject": "events_b"}, {"subject": "events_b"}]
    assert asyncio.run(fired("events_c")) == []


async def first_ring(while_waiting: Any = None) -> list[str]:
    """Open the shared stream and return the first subjects that get a run."""
    async with aclosing(Watcher.open_shared_stream({})) as stream:  # type: ignore[type-var]
        ring = asyncio.ensure_future(anext(stream))
        if while_waiting is not None:
            await while_waiting()
        return await asyncio.wait_for(ring, timeout=30)


def test_the_stream_yields_the_runners_of_the_rule_files(home: Path) -> None:
    """On a first start, opened by the settings in the environment, every runner gets a run."""
    assert sorted(asyncio.run(first_ring())) == ["events_night", "events_orders"]


def test_the_stream_survives_broken_rule_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the rules, like an unreachable ledger, stops the watcher only until it is fixed."""
    monkeypatch.setattr(watcher, "_PAUSE_SECONDS", 0.05)
    rules = home.parent / "rules" / "orders.yaml"
    right = rules.read_text()
    rules.write_text("rules: [")

    async def fix() -> None:
        await asyncio.sleep(0.3)
        rules.write_text(right)

    assert sorted(asyncio.run(first_ring(fix))) == ["events_night", "events_orders"]


def test_the_stream_does_not_block_the_triggerer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow poll of a bus does not block the other triggers."""
    looks, responses = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def look_slowly() -> None:
        looks.set()
        in_time.append(responses.wait(30))  # the waiting caller could not have resumed it

    monkeypatch.setattr(watcher, "_open_watch", look_slowly)

    async def beat() -> None:
        task = asyncio.ensure_future(first_ring())
        while not looks.is_set():
            await asyncio.sleep(0.01)
        responses.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(beat())

    assert in_time == [True]
