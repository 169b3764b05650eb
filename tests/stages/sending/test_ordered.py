"""Ordered targets: of one key the receiver gets everything in bus order, whatever fails; other keys go on."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from stages.delivering import RUNNER, RunningClock, Sending, routed

from eventbridge.delivery import Answer
from eventbridge.stages.audit import audit
from eventbridge.targets.protocol import Request
from eventbridge.testing.targets import InMemoryTarget, accept


def keyed(number: int, customer: str | None) -> bytes:
    """Return the order `number` of a customer."""
    data = {"number": number} | ({"customer": customer} if customer is not None else {})
    event = {"specversion": "1.0", "id": f"{customer}-{number}", "source": "/shop", "type": "order.placed"}
    return json.dumps(event | {"data": data}).encode()


def number_of(request: Request) -> tuple[str, int]:
    """Return the customer and the number of an order as a target gets it."""
    data = json.loads(request.payload)["data"]
    return data.get("customer"), data["number"]


@dataclass
class Recorder:
    """A target that keeps what it accepted, by customer in order, and refuses what `refused` names, with that code."""

    refused: dict[tuple[str, int], int] = field(default_factory=dict)
    down: bool = False
    got: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    asked: list[tuple[str, int]] = field(default_factory=list)

    def open(self, *_: Any) -> InMemoryTarget:
        """Return the target as a push opens it."""
        return InMemoryTarget(self._answer)

    def _answer(self, request: Request) -> Answer:
        order = number_of(request)
        self.asked.append(order)
        code = 503 if self.down else self.refused.get(order)
        if code is None:
            self.got[order[0]].append(order[1])
            return accept(request)
        return Answer(accepted=False, started_at=datetime.min.replace(tzinfo=UTC), duration_ms=0.0, code=code)


RETRY = "retry: {policy: own, attempts: 3, initial: 1h, multiplier: 1, maximum: 1h}"


def ordered(by: str = "ordered_by: $.data.customer", retry: str = RETRY) -> str:
    """Return an ordered target as flow YAML."""
    return f"{{type: http, url: https://shop.example/hook, {by}, {retry}}}"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What all targets of the test are."""
    made = Recorder()
    monkeypatch.setattr("eventbridge.stages.workplace.open_target", made.open)
    return made


def later(sending: Sending, clock: RunningClock, rounds: int = 3) -> None:
    """Deliver what is due in an hour, and what that lets go."""
    for _ in range(rounds):
        clock.advance(2 * 3600)
        sending.deliver()


def test_a_failed_delivery_blocks_its_key_and_no_other(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """The third of one customer fails: it and all later ones, also of later batches, come behind it once it is taken."""
    work = sending.begin(*[keyed(n, c) for n in range(6) for c in "ab"], crm=ordered())
    recorder.refused[("a", 3)] = 503
    sending.deliver()
    sending.publish(*[keyed(n, c) for n in range(6, 9) for c in "ab"])
    sending.deliver()
    assert recorder.got == {"a": [0, 1, 2], "b": list(range(9))}
    assert [order for order in recorder.asked if order[0] == "a"] == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]

    recorder.refused.clear()
    later(sending, clock)

    assert recorder.got["a"] == list(range(9))
    assert audit(work).differences == ()
    assert audit(work).deliveries["orders/crm"] == {"matched": 18, "delivered": 18, "dead": 0, "parked": 0}
