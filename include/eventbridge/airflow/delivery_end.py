"""The trigger that waits until the deliveries of events have ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from eventbridge.model.why import DeliveryResult, EventResult
    from eventbridge.rules import RuleSet
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: The time between two looks, which grows, because a look reads files of the store.
_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 15.0

_ENDED = frozenset({"delivered", "dead_lettered", "shadow"})


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
        waiting, deliveries, undelivered = list(self.events), [], []
        pause, last_error = _FIRST_SECONDS, ""
        while waiting:
            try:
                ended = await _in_thread(self._look, waiting[0])
            except Exception as error:  # the wait must survive every outage
                ended = None
                if last_error != str(error):
                    last_error = str(error)
                    log.warning("cannot read the deliveries of event %s: %s", waiting[0]["id"], error)
            if ended is None:
                await asyncio.sleep(pause)
                pause = min(_LONGEST_SECONDS, 1.5 * pause)
                continue
            deliveries += ended
            undelivered += [] if ended else [waiting[0]["id"]]
            waiting.pop(0)
        yield TriggerEvent({"deliveries": deliveries, "undelivered": undelivered})  # type: ignore[no-untyped-call]

    def _look(self, event: dict[str, Any]) -> list[dict[str, Any]] | None:
        from eventbridge.airflow.connections import airflow_connection
        from eventbridge.airflow.settings import airflow_settings
        from eventbridge.runtime.open import open_runtime

        if not _runtimes:
            _runtimes.append(open_runtime(airflow_settings(), airflow_connection))
        return ended_deliveries(_runtimes[0], self.bus, event, self.rule, self.target)


#: All triggers of this process share one thread, and in it one runtime.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eventbridge-deliveries")
_runtimes: list[Runtime] = []


async def _in_thread(look: Any, event: dict[str, Any]) -> list[dict[str, Any]] | None:
    found: list[dict[str, Any]] | None = await asyncio.get_running_loop().run_in_executor(_thread, look, event)
    return found


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


def ended_deliveries(
    runtime: Runtime, bus: str, event: dict[str, Any], rule: str | None, target: str | None
) -> list[dict[str, Any]] | None:
    """Return the deliveries of an event if all of them have ended, else None. Deliveries of replays do not count."""
    from eventbridge.errors import NotFoundError
    from eventbridge.views.trace.explain import why

    runners = _runners(runtime.rule_set(), bus, rule, target)
    if not _have_passed(runtime, runners, event):
        return None
    try:
        found = why(runtime, event["id"], bus=bus, max_unmatched=0, rule=rule)
    except NotFoundError:  # nobody has landed it yet
        return None
    if found.not_landed or found.before_start:
        return None
    valid = [each for each in found.events if each.status == "valid"]
    if not all(_is_settled(each, runners) for each in valid):
        return None
    deliveries = [
        (each, delivery)
        for each in valid
        for delivery in each.deliveries
        if not delivery.replay_id and target in (None, delivery.target)
    ]
    if any(delivery.state not in _ENDED for _, delivery in deliveries):
        return None
    return [_described(event["id"], *each) for each in deliveries]


def _runners(rules: RuleSet, bus: str, rule: str | None, target: str | None) -> frozenset[str]:
    """Return the runners that deliver events of a bus to the wanted rules and targets."""
    return frozenset(
        each.runner
        for name, each in rules.enabled().items()
        if each.bus == bus and rule in (None, name) and (target is None or target in each.targets)
    )


def _have_passed(runtime: Runtime, runners: frozenset[str], event: dict[str, Any]) -> bool:
    """Return whether every runner has committed the offset of an event; True if its offset is not known."""
    from eventbridge.model.partition import Partition

    if "offset" not in event:
        return True
    partition = Partition(*event["partition"])
    return all(runtime.ledger.offsets.committed(each).get(partition, 0) > event["offset"] for each in runners)


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
