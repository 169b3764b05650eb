"""One target's share of a chunk, delivered in a thread of its own: sharing a chunk shares a process, never a fate."""

from __future__ import annotations

import json
import queue
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from eventbridge.delivery import (
    Answer,
    DeadLettered,
    Delivered,
    Outcome,
    RetryAt,
    Unknown,
    decide,
    expired,
)
from eventbridge.errors import InfrastructureError
from eventbridge.identity import delivery_id_text
from eventbridge.rule.model import RetryPolicy
from eventbridge.targets.protocol import Request, Target

#: How long a push waits for its next retry with nothing else to do. A longer wait is the slow lane's:
#: here it would keep the whole batch, and with it every other target's next events, from being committed.
_LINGER_SECONDS = 2.0
#: Longest nap of a thread that waits for a retry to fall due: how late it may notice the stop flag.
_NAP_SECONDS = 0.2


@dataclass(frozen=True)
class Item:
    """One delivery of the chunk and how often it was tried before."""

    delivery_id: bytes
    rule: str
    target: str
    request: Request
    arrived_at: datetime
    attempts: int
    held_seconds: float
    due_at: datetime | None = None  # None: at once


@dataclass
class TargetReport:
    """What a target's run came to; `spent` = it ended because its budget did, with work left."""

    rule: str
    target: str
    total: int
    delivered: int = 0
    dead_lettered: int = 0
    retried: int = 0
    spent: bool = False
    gone: bool = False
    crashed: BaseException | None = None

    @property
    def settled(self) -> int:
        """How many deliveries have their final verdict."""
        return self.delivered + self.dead_lettered


class TargetRun(threading.Thread):
    """Delivers items to one target until all are answered, the budget is over, or `stop` is set.

    Rows of schema OUTCOME go to `rows` as lists, only once the target has flushed what they report.
    A retry that falls due within the budget is made here, without a round through the ledger.
    """

    def __init__(
        self,
        items: Sequence[Item],
        *,
        open_target: Callable[[], Target],
        policy: RetryPolicy,
        until: datetime,
        clock: Callable[[], datetime],
        stop: threading.Event,
        rows: queue.SimpleQueue[list[dict[str, Any]]],
    ) -> None:
        first = items[0]
        super().__init__(name=f"{first.rule}/{first.target}", daemon=True)
        self.report = TargetReport(first.rule, first.target, total=len(items))
        self._open_target = open_target
        self._policy = policy
        self._until = until
        self._clock = clock
        self._stop_asked = stop
        self._rows = rows
        self._waiting = list(items)
        self._unflushed: list[tuple[Item, Answer]] = []
        self._interrupted = False
        self._dice = random.Random()

    def run(self) -> None:
        """Deliver; what goes wrong here is reported, never raised into the other targets' threads."""
        try:
            target = self._open_target()
            with closing(target):
                self._deliver_all(target)
        except BaseException as error:  # carried to the push task, which fails with it
            self.report.crashed = error

    def _deliver_all(self, target: Target) -> None:
        while self._waiting and not self._over():
            ready = self._ready()
            if ready:
                self._round(target, ready)
            elif self._waiting:
                self._nap()
        budget_is_over = self._clock() >= self._until - timedelta(seconds=_NAP_SECONDS)
        self.report.spent = budget_is_over and not self.report.gone and self._has_unsettled_work()

    def _ready(self) -> list[Item]:
        now = self._clock()
        ready = [item for item in self._waiting if item.due_at is None or item.due_at <= now]
        self._waiting = [item for item in self._waiting if item.due_at is not None and item.due_at > now]
        alive = []
        for item in ready:
            verdict = expired(self._policy, item.arrived_at, item.held_seconds, now)
            if verdict is None:
                alive.append(item)
            else:
                self._report(item, verdict, None)
        return alive

    def _round(self, target: Target, ready: list[Item]) -> None:
        requests = [replace(item.request, index=index) for index, item in enumerate(ready)]
        answered: set[int] = set()
        with closing(target.deliver(requests, self._until)) as answers:
            for index, answer in answers:
                answered.add(index)
                self._unflushed.append((ready[index], answer))
                if len(self._unflushed) >= target.flush_every:
                    self._settle_answers(target)
                if self._stop_asked.is_set() or self.report.gone:
                    break
        self._settle_answers(target)
        # what was not started comes first again if there is still time, else it stays without an outcome
        self._waiting = [item for index, item in enumerate(ready) if index not in answered] + self._waiting

    def _settle_answers(self, target: Target) -> None:
        batch, self._unflushed = self._unflushed, []
        if not batch:
            return
        try:
            target.flush()
        except InfrastructureError as error:
            lost = str(error)
            batch = [(item, _not_flushed(answer, lost)) for item, answer in batch]
        for item, answer in batch:
            self._decide(item, answer)

    def _decide(self, item: Item, answer: Answer) -> None:
        attempts = item.attempts + 1
        outcome: Outcome
        if answer.error_class == "Interrupted":
            self._interrupted = True
            outcome = Unknown()
        else:
            outcome = decide(
                answer,
                self._policy,
                attempts=attempts,
                arrived_at=item.arrived_at,
                held_seconds=item.held_seconds,
                now=self._clock(),
                draw=self._dice.random(),
            )
        tried = replace(item, attempts=attempts)
        self._report(tried, outcome, answer)
        if isinstance(outcome, RetryAt):
            self._waiting.append(replace(tried, due_at=outcome.due_at))

    def _report(self, item: Item, outcome: Outcome, answer: Answer | None) -> None:
        if isinstance(outcome, Delivered):
            self.report.delivered += 1
        elif isinstance(outcome, DeadLettered):
            self.report.dead_lettered += 1
            self.report.gone = self.report.gone or outcome.disable_target
        elif isinstance(outcome, RetryAt):
            self.report.retried += 1
        self._rows.put([outcome_row(item, outcome, answer, self._clock())])

    def _nap(self) -> None:
        due = min(item.due_at for item in self._waiting if item.due_at is not None)
        wait = (min(due, self._until) - self._clock()).total_seconds()
        self._stop_asked.wait(max(0.0, min(wait, _NAP_SECONDS)))

    def _over(self) -> bool:
        if self._stop_asked.is_set() or self.report.gone:
            return True
        now = self._clock()
        worth_waiting_for = min(self._until, now + timedelta(seconds=_LINGER_SECONDS))
        return now >= self._until or all(
            item.due_at is not None and item.due_at >= worth_waiting_for for item in self._waiting
        )

    def _has_unsettled_work(self) -> bool:
        return self._interrupted or any(item.due_at is None or item.due_at <= self._until for item in self._waiting)


def request_of(row: dict[str, Any]) -> Request:
    """Return the request of a row of a delivery file."""
    return Request(
        index=0,
        delivery_id=delivery_id_text(row["delivery_id"]),
        payload=row["payload"] or b"",
        content_type=row["content_type"] or "application/json",
        headers=json.loads(row["headers"]) if row["headers"] else {},
        order_key=row["order_key"],
    )


def outcome_row(item: Item, outcome: Outcome, answer: Answer | None, now: datetime) -> dict[str, Any]:
    """Return the row of schema OUTCOME for one attempt (`answer`), or for a decision made without one (None)."""
    return {
        "delivery_id": item.delivery_id,
        "rule": item.rule,
        "target": item.target,
        "attempt": item.attempts,
        "sent": answer is not None,
        "started_at": answer.started_at if answer else now,
        "duration_ms": answer.duration_ms if answer else 0.0,
        "outcome": type(outcome).__name__,
        "due_at": outcome.due_at if isinstance(outcome, RetryAt) else None,
        "reason": outcome.reason if isinstance(outcome, RetryAt | DeadLettered) else None,
        "code": answer.code if answer else None,
        "error_class": answer.error_class if answer else None,
        "error": (answer.error if answer else None) or (outcome.detail if isinstance(outcome, DeadLettered) else None),
        "response_head": answer.response_head if answer else None,
    }


def _not_flushed(answer: Answer, error: str) -> Answer:
    return replace(answer, accepted=False, code=None, error_class="FlushFailed", error=error)
