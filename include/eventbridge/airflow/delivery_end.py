"""The trigger that waits until the deliveries of events have ended.

To find the deliveries of an event, files of the store are read. So that hundreds of sensors cost little, a trigger does
that again only if the ledger says that something may have changed, and all triggers of a process share what they read
from the ledger in a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from eventbridge.model.why import DeliveryResult, EventResult
    from eventbridge.rules import RuleSet
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: The time between two looks of a trigger, which grows while looks read files of the store.
_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 15.0
#: The time for which what was read from the ledger serves all triggers.
_SHARED_SECONDS = 1.0

_ENDED = frozenset({"delivered", "dead_lettered", "shadow"})

Found = TypeVar("Found")


class LedgerView:
    """Reads rules, committed offsets and waiting deliveries, each at most once a second for all triggers."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._read_at = float("-inf")
        self._found: dict[Hashable, Any] = {}

    def runners(self, bus: str, rule: str | None, target: str | None) -> frozenset[str]:
        """Return the runners that deliver events of a bus to the wanted rules and targets."""
        rules = self._shared("rules", self.runtime.rule_set)
        return self._shared(("runners", bus, rule, target), lambda: _runners(rules, bus, rule, target))

    def committed(self, runner: str) -> dict[Any, int]:
        """Return the offsets that a runner has committed."""
        return self._shared(("committed", runner), lambda: self.runtime.ledger.offsets.committed(runner))

    def mark(self, runners: frozenset[str], batches: tuple[str, ...]) -> Hashable:
        """Return a value that changes when deliveries that batches have left may have ended or, without batches, when
        a runner has committed."""
        if batches:
            return tuple(self._shared(("batch", each), partial(self._waiting, each)) for each in batches)
        return tuple(tuple(sorted(self.committed(each).items())) for each in sorted(runners))

    def _waiting(self, batch_id: str) -> Hashable:
        ledger = self.runtime.ledger
        rows = [
            *((each.pending_id, each.state) for each in ledger.pending.list_for_batch(batch_id)),
            *((each.rule, each.state) for each in ledger.deferred_matches.list_for_batch(batch_id)),
        ]
        return frozenset(each for each in rows if each[1] != "closed"), ledger.batches.get(batch_id).state

    def _shared(self, key: Hashable, read: Callable[[], Found]) -> Found:
        now = time.monotonic()
        if now - self._read_at >= _SHARED_SECONDS:
            self._found.clear()
            self._read_at = now
        if key not in self._found:
            self._found[key] = read()
        found: Found = self._found[key]
        return found


@dataclass
class DeliveryWait:
    """The wait of one trigger for the deliveries of one event, of one rule or target or of all.

    `event` has the `id` and, if it is known, the position: `partition` and `offset`.
    """

    bus: str
    event: dict[str, Any]
    rule: str | None = None
    target: str | None = None
    #: How often files of the store were read.
    looks: int = 0
    _batches: tuple[str, ...] = ()
    _mark: Hashable = field(default=None)

    def ended(self, view: LedgerView) -> list[dict[str, Any]] | None:
        """Return the deliveries if all of them have ended, else None. Deliveries of replays do not count."""
        runners = view.runners(self.bus, self.rule, self.target)
        if not self._have_passed(view, runners):
            return None
        mark = view.mark(runners, self._batches)  # read before the deliveries: a change in between is then seen later
        if self._mark is not None and mark == self._mark:
            return None
        self.looks += 1
        found, batches = self._look(view.runtime, runners)
        # A mark is valid only for the batches that it was taken of, and needs a runner. Without a mark, the next look
        # reads the files again.
        self._mark = mark if batches == self._batches and (batches or runners) else None
        self._batches = batches
        return found

    def _have_passed(self, view: LedgerView, runners: frozenset[str]) -> bool:
        """Return whether every runner has committed the event's offset; True if its offset is not known."""
        from eventbridge.model.partition import Partition

        if "offset" not in self.event:
            return True
        partition = Partition(*self.event["partition"])
        return all(view.committed(each).get(partition, 0) > self.event["offset"] for each in runners)

    def _look(self, runtime: Runtime, runners: frozenset[str]) -> tuple[list[dict[str, Any]] | None, tuple[str, ...]]:
        """Return the deliveries if all have ended, else None and the batches that left the others."""
        from eventbridge.errors import NotFoundError
        from eventbridge.views.trace.explain import why

        try:
            found = why(runtime, self.event["id"], bus=self.bus, max_unmatched=0, rule=self.rule)
        except NotFoundError:  # nobody has landed it yet
            return None, ()
        valid = [each for each in found.events if each.status == "valid"]
        if found.not_landed or found.before_start or not all(_is_settled(each, runners) for each in valid):
            return None, ()
        deliveries = [
            (each, delivery)
            for each in valid
            for delivery in each.deliveries
            if not delivery.replay_id and self.target in (None, delivery.target)
        ]
        waiting = {each.batch_id for _, each in deliveries if each.state not in _ENDED}
        steps = [step for each in valid for step in each.steps]
        # a rule whose match is deferred may still make deliveries
        waiting |= {each.batch_id for each in steps if each.what == "deferred" and each.outcome != "closed"}
        if waiting:
            return None, tuple(sorted(waiting))
        return [_described(self.event["id"], *each) for each in deliveries], ()


class DeliveryEnd(BaseTrigger):
    """Reports the deliveries of events on a bus, of one rule or target or of all, once they have all ended.

    `events` are dicts with the `id` and, if it is known, the position: `partition` and `offset`.
    """

    def __init__(
        self, bus: str, events: Sequence[dict[str, Any]], rule: str | None = None, target: str | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bus = bus
        self.events = list(events)
        self.rule = rule
        self.target = target

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments from which the triggerer creates this trigger."""
        fields = ("bus", "events", "rule", "target")
        return f"{__name__}.DeliveryEnd", {field: getattr(self, field) for field in fields}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event, with the deliveries and the ids of events that no rule delivers. Errors do not end it."""
        deliveries, undelivered = [], []
        last_error = ""
        for event in self.events:
            wait = DeliveryWait(self.bus, event, self.rule, self.target)
            ended = None
            while ended is None:
                try:
                    ended = await _in_thread(wait)
                except Exception as error:  # the wait must survive every outage
                    if last_error != str(error):
                        last_error = str(error)
                        log.warning("cannot read the deliveries of event %s: %s", event["id"], error)
                if ended is None:
                    await asyncio.sleep(min(_LONGEST_SECONDS, _FIRST_SECONDS * 1.5 ** min(wait.looks, 10)))
            deliveries += ended
            undelivered += [] if ended else [event["id"]]
        yield TriggerEvent({"deliveries": deliveries, "undelivered": undelivered})  # type: ignore[no-untyped-call]


#: All triggers of this process share one thread, and in it one view of one ledger.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eventbridge-deliveries")
_views: list[LedgerView] = []


async def _in_thread(wait: DeliveryWait) -> list[dict[str, Any]] | None:
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: wait.ended(_view()))


def _view() -> LedgerView:
    from eventbridge.airflow.connections import airflow_connection
    from eventbridge.airflow.settings import airflow_settings
    from eventbridge.runtime.open import open_runtime

    if not _views:
        _views.append(LedgerView(open_runtime(airflow_settings(), airflow_connection)))
    return _views[0]


def already_ended(
    runtime: Runtime, bus: str, events: Sequence[dict[str, Any]], rule: str | None, target: str | None
) -> dict[str, Any] | None:
    """Return what DeliveryEnd would report if all deliveries have ended, else None, also if that cannot be read now."""
    from eventbridge.errors import EventBridgeError

    view = LedgerView(runtime)
    deliveries, undelivered = [], []
    for event in events:
        try:
            ended = DeliveryWait(bus, event, rule, target).ended(view)
        except EventBridgeError:  # the trigger reports it, and waits for its end
            return None
        if ended is None:
            return None
        deliveries += ended
        undelivered += [] if ended else [event["id"]]
    return {"deliveries": deliveries, "undelivered": undelivered}


def check_wanted(runtime: Runtime, bus: str, rule: str | None, target: str | None) -> None:
    """Raise NotFoundError or UserError if a bus, one of its rules or a target does not exist."""
    from eventbridge.errors import UserError
    from eventbridge.rules.find import find_bus, find_rule, find_target, find_target_of_any

    rules = runtime.rule_set()
    find_bus(rules, bus)
    if rule is not None:
        if (other := find_rule(rules, rule).bus) != bus:
            raise UserError(f"the rule {rule!r} is on the bus {other!r}, not on {bus!r}")
        if target is not None:
            find_target(rules, rule, target)
    elif target is not None:
        find_target_of_any(rules, target)


def _runners(rules: RuleSet, bus: str, rule: str | None, target: str | None) -> frozenset[str]:
    return frozenset(
        each.runner
        for name, each in rules.enabled().items()
        if each.bus == bus and rule in (None, name) and (target is None or target in each.targets)
    )


def _is_settled(event: EventResult, runners: frozenset[str]) -> bool:
    """Return whether every runner has committed the batch in which it took an event."""
    return runners <= {each.runner for each in event.landings if each.state == "committed"}


def _described(event_id: str, event: EventResult, delivery: DeliveryResult) -> dict[str, Any]:
    details = [
        step.detail
        for step in event.steps
        if step.delivery_id == delivery.delivery_id and step.what == "dead-lettered" and step.detail
    ]
    return {
        "event_id": event_id,
        "rule": delivery.rule,
        "target": delivery.target,
        "delivery_id": delivery.delivery_id,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "reason": ": ".join(dict.fromkeys([delivery.reason or "unknown", *details[-1:]]))
        if delivery.state == "dead_lettered"
        else delivery.reason,
    }
