"""Helpers for the tests of ordered targets: orders of customers, a target that records them, rules."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipeline.delivering import Sending

from eventbridge.model.outcome import Response
from eventbridge.targets.protocol import Request
from eventbridge.testing.targets import InMemoryTarget, accept


def keyed(number: int, customer: str | None, at: datetime | None = None) -> bytes:
    """Return the order `number` of a customer, with `at`, the time from which it may be sent."""
    data: dict[str, Any] = {"number": number} | ({"customer": customer} if customer is not None else {})
    data |= {"at": at.isoformat()} if at is not None else {}
    event = {"specversion": "1.0", "id": f"{customer}-{number}", "source": "/shop", "type": "order.placed"}
    return json.dumps(event | {"data": data}).encode()


def number_of(request: Request) -> tuple[str, int]:
    """Return the customer and the number of an order in a request."""
    data = json.loads(request.payload)["data"]
    return data.get("customer"), data["number"]


@dataclass
class Recorder:
    """A target that records what it accepted, by customer and in order, and refuses the orders in `refused`.

    It refuses every order the first `at_first` times. `early` has the orders that arrived before their `not_before`.
    """

    refused: dict[tuple[str, int], int] = field(default_factory=dict)
    at_first: int = 0
    down: bool = False
    plain: bool = False
    got: dict[Any, list[Any]] = field(default_factory=lambda: defaultdict(list))
    asked: list[tuple[str, int]] = field(default_factory=list)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    not_before: dict[tuple[str, int], datetime] = field(default_factory=dict)
    early: list[tuple[str, int]] = field(default_factory=list)

    def open(self, *_: Any) -> InMemoryTarget:
        """Return the target as a push opens it."""
        return InMemoryTarget(self._response)

    def _response(self, request: Request) -> Response:
        order = ("plain", request.payload) if self.plain else number_of(request)
        self.asked.append(order)
        if order in self.not_before and self.clock() < self.not_before[order]:
            self.early.append(order)
        code = 503 if self.down or self.asked.count(order) <= self.at_first else self.refused.get(order)
        if code is None:
            self.got[order[0]].append(order[1])
            return accept(request)
        return Response(accepted=False, started_at=datetime.min.replace(tzinfo=UTC), duration_ms=0.0, code=code)


RETRY = "retry: {policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}"


def ordered(by: str = "ordering_key: $.data.customer", retry: str = RETRY) -> str:
    """Return an ordered target as flow YAML."""
    return f"{{type: http, url: https://shop.example/hook, {by}, {retry}}}"


def publish(sending: Sending, *orders: bytes) -> None:
    """Publish orders, each customer's to one partition."""
    for body in orders:
        sending.site.publish(body, key=str(json.loads(body)["data"].get("customer")))
