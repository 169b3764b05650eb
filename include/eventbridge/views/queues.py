"""Returns the status of queues: how many deliveries wait, and how many consumers have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from eventbridge.model.queue import QueueCount, QueuedDelivery
from eventbridge.rules.find import find_target
from eventbridge.runtime.runtime import Runtime
from eventbridge.targets.queue.fields import PullQueueFields, QueueTargets, find_queue, queues_of


@dataclass(frozen=True)
class QueueStatus:
    """A queue and its targets, `<rule>/<target>`.

    `ready` deliveries can be received now, `delayed` ones after a failed attempt later, and `blocked` ones after an
    earlier one of their key. `received` ones have a consumer. `finished` ones wait for a batch that records their
    status. `oldest_ready_at` is when the one that waits longest became visible.
    """

    queue: str
    targets: tuple[str, ...]
    ready: int
    delayed: int
    blocked: int
    received: int
    finished: int
    oldest_ready_at: datetime | None

    @property
    def waiting(self) -> int:
        """The number of deliveries that no consumer has."""
        return self.ready + self.delayed + self.blocked


def queue_statuses(runtime: Runtime) -> list[QueueStatus]:
    """Return the status of each queue of the current rules, sorted by name."""
    counts = runtime.ledger.queues.counts()
    return [_status_of(name, targets, counts) for name, targets in sorted(queues_of(runtime.rule_set()).items())]


def queue_status(runtime: Runtime, name: str) -> QueueStatus:
    """Return the status of one queue. Raises NotFoundError if no rule has a target of it."""
    return _status_of(name, find_queue(runtime.rule_set(), name), runtime.ledger.queues.counts())


def queue_by_target(runtime: Runtime, name: str) -> list[QueueStatus]:
    """Return the status of a queue's deliveries of each target, sorted by rule and target."""
    targets = find_queue(runtime.rule_set(), name)
    counts = runtime.ledger.queues.counts()
    return [_status_of(name, {key: targets[key]}, counts) for key in sorted(targets)]


def queue_of_target(runtime: Runtime, rule: str, target: str) -> QueueStatus | None:
    """Return the status of one target's deliveries in its queue; None if the target is no queue."""
    spec = find_target(runtime.rule_set(), rule, target)
    if not isinstance(spec, PullQueueFields):
        return None
    return _status_of(spec.queue, {(rule, target): spec}, runtime.ledger.queues.counts())


def queue_text(delivery: QueuedDelivery, now: datetime) -> str:
    """Return what a delivery in a queue waits for, for people to read."""
    match delivery.state:
        case "acknowledged":
            return f"acknowledged at {delivery.finished_at:%Y-%m-%d %H:%M:%S}; the next retry batch records it"
        case "dead":
            return "dead; the next retry batch records it"
        case "blocked":
            return "in the queue, behind an earlier delivery of its key"
        case _ if delivery.is_received(now):
            return f"a consumer has it until {delivery.visible_at:%Y-%m-%d %H:%M:%S}, attempt {delivery.attempts}"
        case _ if delivery.visible_at > now:
            return f"in the queue, can be received at {delivery.visible_at:%Y-%m-%d %H:%M:%S}"
        case _:
            return "in the queue, waits for a consumer"


def _status_of(name: str, targets: QueueTargets, counts: Sequence[QueueCount]) -> QueueStatus:
    own = [each for each in counts if (each.rule, each.target) in targets]
    number: Counter[str] = Counter()
    for each in own:
        number[each.state] += each.count
    return QueueStatus(
        name,
        tuple(f"{rule}/{target}" for rule, target in sorted(targets)),
        number["ready"],
        number["delayed"],
        number["blocked"],
        number["received"],
        number["acknowledged"] + number["dead"],
        min((each.first_at for each in own if each.state == "ready"), default=None),
    )
