"""Builds the payloads of asset events: CloudEvents of bounded size, with the position after them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

from eventbridge.airflow.subscriptions import Subscription
from eventbridge.event.json_document import JsonValue, Number
from eventbridge.model.partition import Partition
from eventbridge.views.tail import TailedMessage

#: The largest event, in bytes of JSON, that an asset event has with its data. Airflow stores asset events in its
#: database, and logs them.
MAX_EVENT_BYTES = 32 * 1024
#: An asset event with several events ends before it is larger than this.
_MAX_BYTES = 256 * 1024
#: The attributes that are left of an event that is larger even without its data.
_REQUIRED = ("specversion", "id", "source", "type", "subject", "time")
_MAX_TEXT = 1_024

#: Characters that PostgreSQL or Airflow's messages between processes refuse.
_REFUSED = re.compile("[\x00\ud800-\udfff]")


class AssetEvents:
    """Collects the events of a subscription in a poll, as the payloads of at most `limit` asset events."""

    def __init__(self, subscription: Subscription, limit: int) -> None:
        self._subscription = subscription
        self._limit = limit
        self._size = 0
        self._payloads: list[dict[str, Any]] = []
        self._next: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether the last asset event that is allowed has as many events as it may have."""
        return len(self._payloads) >= self._limit and self._is_last_full()

    def add(self, message: TailedMessage) -> None:
        """Add an event to the last asset event, or to a new one."""
        assert message.event is not None
        event, size, is_cut = plain_event(message.event.document, len(message.body or b""))
        if not self._payloads or self._is_last_full():
            self._begin()
        payload = self._payloads[-1]
        self._size += size
        payload["events"].append(event)
        if is_cut:
            payload["without_data"].append(event["id"])
        self._next[partition_number(message.partition)] = message.offset + 1
        payload["position"]["next"] = [[*each] for each in self._next.items()]

    def payloads(self) -> list[dict[str, Any]]:
        """Return the payloads so far."""
        return self._payloads

    def wake(self) -> None:
        """Add an asset event without events, unless there is one already."""
        if not self._payloads:
            self._begin()

    def _is_last_full(self) -> bool:
        return len(self._payloads[-1]["events"]) >= self._subscription.batch or self._size >= _MAX_BYTES

    def _begin(self) -> None:
        each = self._subscription
        each.sent += 1
        self._size, self._next = 0, {}
        # Numbers only, because Airflow's API masks text that equals a secret.
        position = {"watcher": watcher_number(each.bus, each.name), "sequence": each.sent, "next": []}
        self._payloads.append({"bus": each.bus, "events": [], "without_data": [], "position": position})


def watcher_number(bus: str, name: str) -> int:
    """Return the number by which asset events name the watcher that made them."""
    return _number_of(f"{bus}\n{name}")


def partition_number(partition: Partition) -> int:
    """Return the number of a partition in the position of an asset event."""
    return _number_of("\n".join(map(str, partition)))


def _number_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")  # exact in JavaScript too


def plain_event(document: dict[str, JsonValue], size: int) -> tuple[dict[str, Any], int, bool]:
    """Return an event as values that JSON, MessagePack and every database take, its size, and whether its data was cut.

    An event larger than MAX_EVENT_BYTES has no data. A number that does not fit 64 bits becomes text.
    """
    if size <= MAX_EVENT_BYTES:
        return {_text(name): _plain(value) for name, value in document.items()}, size, False
    event = {_text(name): _plain(value) for name, value in document.items() if name not in ("data", "data_base64")}
    size = len(json.dumps(event))
    if size > MAX_EVENT_BYTES:
        event = {name: str(event[name])[:_MAX_TEXT] for name in _REQUIRED if event.get(name) is not None}
        size = len(json.dumps(event))
    return event, size, True


def _plain(value: JsonValue) -> Any:
    if isinstance(value, Number):
        return _number(value.text)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_text(name): _plain(each) for name, each in value.items()}
    return value


def _number(text: str) -> int | float | str:
    if text.lstrip("-").isdecimal():
        return int(text) if len(text) <= 20 and -(2**63) <= int(text) < 2**63 else text
    found = float(text)
    return found if math.isfinite(found) else text


def _text(text: str) -> str:
    return _REFUSED.sub("\ufffd", text)
