"""Defines the rule-file fields of the target type `queue`, and finds the targets of a queue.

It imports little, because all rule readers import it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal

from eventbridge.errors import NotFoundError
from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Target, Transform
from eventbridge.rules.rule_set import RuleSet
from eventbridge.rules.types import SMALL_CHUNK, ChunkSize, TargetType
from eventbridge.rules.vocabulary import CONTENT_MODES
from eventbridge.similar_names import suggest

#: How long a delivery that a consumer has received may be invisible, in seconds, and by default.
LEAST_VISIBILITY_SECONDS: Final = 1.0
MOST_VISIBILITY_SECONDS: Final = 12 * 3_600.0
_VISIBILITY_SECONDS: Final = 30.0

#: The fields of a target that decide when and how fast EventBridge sends, which consumers of a queue decide.
_OF_CONSUMERS: Final = ("rate", "deliver_between", "disable_after", "shadow_of")


class PullQueueFields(Target):
    """A queue from which consumers receive deliveries; several targets may have the same `queue`."""

    type: Literal["queue"] = "queue"
    queue: str = ""
    visibility_timeout_seconds: float = _VISIBILITY_SECONDS


#: The targets of a queue, by rule and target.
QueueTargets = Mapping[tuple[str, str], PullQueueFields]


def queues_of(rules: RuleSet) -> dict[str, dict[tuple[str, str], PullQueueFields]]:
    """Return the queues of some rules, by name."""
    found: dict[str, dict[tuple[str, str], PullQueueFields]] = defaultdict(dict)
    for rule in rules.with_field("queue", '"'):
        for name, target in rule.destinations.items():
            if isinstance(target, PullQueueFields):
                found[target.queue][rule.name, name] = target
    return dict(found)


def find_queue(rules: RuleSet, name: str) -> QueueTargets:
    """Return the targets of a queue. Raises NotFoundError with the nearest name."""
    known = queues_of(rules)
    if name not in known:
        raise NotFoundError(f"no rule has a target of the queue {name!r}. {suggest('Queues', name, known)}")
    return known[name]


def _read_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    given = [word for word in _OF_CONSUMERS if fields.has(word)]
    fields.refuse(given, "{} does not apply to a queue, whose consumers decide when they receive", "Remove it")
    tolerance = fields.get("errors_tolerance")
    if tolerance is not None and tolerance.value == "none":
        message = "errors_tolerance: none does not apply to a queue, which dead-letters what no consumer acknowledges"
        fields.add_to("errors_tolerance", message, "Remove it, or write errors_tolerance: all")
    mode = {} if transform is None else {"content_mode": fields.choice("content_mode", "structured", CONTENT_MODES)}
    return {
        "queue": fields.name("queue", required=True),
        "visibility_timeout_seconds": fields.duration(
            "visibility_timeout", _VISIBILITY_SECONDS, LEAST_VISIBILITY_SECONDS, MOST_VISIBILITY_SECONDS
        ),
        **mode,
    }


def _chunk_size(_: PullQueueFields) -> ChunkSize:
    return SMALL_CHUNK


QUEUE = TargetType(
    "queue",
    PullQueueFields,
    "eventbridge.targets.queue.target:open_queue",
    chunk_size=_chunk_size,
    read=_read_fields,
    words=("queue", "visibility_timeout", "content_mode"),
)
