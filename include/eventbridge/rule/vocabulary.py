"""The fields and words of rule files: those of this version, and those of the language that this version lacks."""

from __future__ import annotations

from typing import Final

FIELDS: Final = {
    "a rule file": ("buses", "rules"),
    "a bus": ("source", "retention"),
    "a source": ("type", "topics", "queues", "start_at"),
    "a rule": (
        "description",
        "bus",
        "runner",
        "enabled",
        "pattern",
        "where",
        "priority",
        "concurrency",
        "pool",
        "targets",
    ),
    "a target": (
        "type",
        "url",
        "path",
        "connection",
        "transform",
        "timeout",
        "max_in_flight",
        "retry",
        "errors_tolerance",
        "ordered_by",
        "content_mode",
        "allow_http",
        "disable_after",
        "rate",
        "not_before",
        "deliver_between",
        "batch",
        "dead_letter_queue",
    ),
    "a dead letter queue": (
        "type",
        "url",
        "path",
        "connection",
        "timeout",
        "max_in_flight",
        "retry",
        "allow_http",
    ),
    "a timeout": ("total", "connect"),
    "a delivery window": ("hours", "weekdays", "time_zone", "blackout_dates"),
    "a batch": ("count", "bytes"),
    "a transform": ("form", "value", "template", "steps", "missing"),
    "a retry policy": ("policy", "attempts", "initial", "multiplier", "maximum", "jitter", "maximum_event_age"),
}

FIELDS_LATER: Final[dict[str, tuple[str, ...]]] = {
    "a rule file": (),
    "a bus": (),
    "a source": ("connection", "group"),
    "a rule": ("parked",),
    "a target": (),
    "a dead letter queue": (),
    "a timeout": (),
    "a delivery window": (),
    "a batch": (),
    "a transform": (),
    "a retry policy": (),
}

SOURCE_TYPES, SOURCE_TYPES_LATER = ("embedded",), ("kafka", "rocketmq", "sqs", "files")
TARGET_TYPES, TARGET_TYPES_LATER = ("http", "file"), ("kafka", "rocketmq", "sqs")
ERRORS_TOLERANCE: Final = ("all", "none")
CONTENT_MODES: Final = ("structured", "binary", "data")
PRIORITIES: Final = ("high", "medium", "low")
POLICIES: Final = ("EXPONENTIAL_DECAY_RETRY", "BACKOFF_RETRY", "own")
POLICY_ALIASES: Final = {"REGULAR_INTERVAL_RETRY": "BACKOFF_RETRY"}

#: Which target type a field belongs to, where not all have it.
HTTP_ONLY: Final = ("url", "connection", "timeout", "max_in_flight", "content_mode", "allow_http", "batch")
FILE_ONLY: Final = ("path",)
#: What only the policy `own` leaves open.
OWN_ONLY: Final = ("attempts", "initial", "multiplier", "maximum", "jitter")
