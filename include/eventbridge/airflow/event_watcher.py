"""The triggers that read a bus for users' DAGs: one makes asset events, the other ends a sensor's wait.

A DAG file imports this module, so it imports little: a triggerer that runs a trigger imports the rest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from eventbridge.errors import UserError

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import SharedStreamProducer

    from eventbridge.airflow.subscriptions import Poll, Subscription
    from eventbridge.matching.pattern.nodes import Pattern

#: The largest number of events in one asset event.
MAX_BATCH = 1_000


class _BusTrigger(BaseEventTrigger):
    """A trigger that reads a bus. All triggers of a bus in one triggerer share one poll."""

    bus: str

    def shared_stream_key(self) -> tuple[str, str]:
        """Return one key for all triggers of the bus, whatever their patterns."""
        return __name__, self.bus

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the one poll of the bus."""
        from eventbridge.airflow.bus_stream import BusStream

        return BusStream(kwargs["bus"])

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Poll]) -> AsyncIterator[TriggerEvent]:
        """Yield what this trigger is to report about each poll."""
        from eventbridge.airflow.subscriptions import subscribed

        with subscribed(self.subscription()) as subscription:
            async for poll in shared_stream:
                for payload in poll.take(subscription):
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                    if not subscription.assets:
                        return

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Refuse to run alone: Airflow runs a trigger with a `shared_stream_key` by `filter_shared_stream`."""
        raise RuntimeError("this triggerer has no shared streams. Use the version of Airflow that EventBridge requires")
        yield

    def subscription(self) -> Subscription:
        """Return what this trigger wants from the bus."""
        raise NotImplementedError


class EventBridgeWatcher(_BusTrigger):
    """Makes an asset event for each event on a bus that matches a pattern, for `airflow.sdk.AssetWatcher`.

    `pattern` is a pattern of the rule files, as a dict or as JSON; without one, every event matches. With `batch`, an
    asset event has up to that many events. The first asset event is for the first matching event that is published
    after the watcher's start or, with `start_at="earliest"`, for the first one that the bus still holds.

    The position belongs to the asset and the bus, so it outlives changes of the pattern. `name` distinguishes two
    watchers of one asset on one bus. Every matching event gets exactly one asset event. Raises UserError for invalid
    arguments.
    """

    def __init__(
        self,
        bus: str,
        pattern: Mapping[str, Any] | str | None = None,
        *,
        batch: int = 1,
        start_at: Literal["latest", "earliest"] = "latest",
        name: str = "",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if not bus or not isinstance(bus, str):
            raise UserError("EventBridgeWatcher: no bus given. Write the name of a bus of your rule files")
        if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MAX_BATCH:
            raise UserError(f"EventBridgeWatcher: batch is {batch!r}. Write a number of events from 1 to {MAX_BATCH:,}")
        if start_at not in ("latest", "earliest"):
            raise UserError(f"EventBridgeWatcher: start_at is {start_at!r}. Write latest or earliest")
        self.bus = bus
        self.pattern = pattern_text(pattern, "EventBridgeWatcher")
        self.batch = batch
        self.start_at = start_at
        self.name = name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments from which the triggerer creates this trigger."""
        fields = ("bus", "pattern", "batch", "start_at", "name")
        return f"{__name__}.EventBridgeWatcher", {field: getattr(self, field) for field in fields}

    def subscription(self) -> Subscription:
        """Return the watcher's subscription. Its position is in the ledger."""
        from eventbridge.airflow.subscriptions import Subscription

        return Subscription(
            self.bus,
            None if self.pattern is None else parsed_pattern(self.pattern, "EventBridgeWatcher"),
            assets=_watched_assets(self),
            name=self.name,
            batch=self.batch,
            start_at=self.start_at,
        )


class MatchingEvent(_BusTrigger):
    """Reports the first event on a bus that matches a pattern and was published at or after `since` (ISO 8601)."""

    def __init__(self, bus: str, pattern: str | None, since: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bus = bus
        self.pattern = pattern
        self.since = since

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments from which the triggerer creates this trigger."""
        return f"{__name__}.MatchingEvent", {"bus": self.bus, "pattern": self.pattern, "since": self.since}

    def subscription(self) -> Subscription:
        """Return the sensor's subscription, which begins at `since` whenever a triggerer starts it."""
        from eventbridge.airflow.subscriptions import Subscription

        pattern = None if self.pattern is None else parsed_pattern(self.pattern, "WaitForEventSensor")
        return Subscription(self.bus, pattern, start_at=datetime.fromisoformat(self.since))


def pattern_text(pattern: Mapping[str, Any] | str | None, where: str) -> str | None:
    """Return a pattern as JSON, after checking it. Raises UserError that begins with `where`."""
    if pattern is None:
        return None
    try:
        text = pattern if isinstance(pattern, str) else json.dumps(pattern)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: the pattern is not JSON: {error}") from None
    parsed_pattern(text, where)
    return text


def parsed_pattern(text: str, where: str) -> Pattern:
    """Return the pattern of a JSON text. Raises UserError that begins with `where`."""
    from eventbridge.matching.pattern.parse import parse_pattern

    try:
        return parse_pattern(text)
    except (UserError, ValueError) as error:
        raise UserError(f"{where}: the pattern is invalid: {error}") from None


def _watched_assets(trigger: BaseEventTrigger) -> tuple[str, ...]:
    """Return the names of the assets for which Airflow runs a trigger.

    A trigger gets them only as the keys of its state stores.
    """
    assets = getattr(trigger.asset_state_store, "_by_name", None)
    if not assets:
        raise UserError(
            "EventBridgeWatcher: Airflow names no asset that it watches. Give it to the AssetWatcher of an Asset"
        )
    return tuple(sorted(assets))
