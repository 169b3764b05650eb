"""Returns the status of queues: how many deliveries wait, and how many consumers have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from eventbridge.model.queue import QueueCount
from eventbridge.runtime.runtime import Runtime
from eventbridge.targets.queue.fields import QueueTargets, queues_of


@dataclass(frozen=True)
class QueueStatus:
    """A queue and its targets, `<rule>/<target>`.

    `waiting` deliveries can be received now, `delayed` ones after a failed attempt later, and `blocked` ones after an
    earlier one of their key. `received` ones have a consumer. `finished` ones wait for a batch that records their
    status. `oldest_waiting_at` is when the one that waits longest became visible.
    """

    queue: str
    targets: tuple[str, ...]
    waiting: int
    delayed: int
    blocked: int
    received: int
    finished: int
    oldest_waiting_at: datetime | None


def queue_statuses(runtime: Runtime) -> list[QueueStatus]:
    """Return the status of each queue of the current rules, sorted by name."""
    counts = runtime.ledger.queues.counts()
    return [_status_of(name, targets, counts) for name, targets in sorted(queues_of(runtime.rule_set()).items())]


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
