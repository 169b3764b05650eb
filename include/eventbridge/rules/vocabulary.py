"""The names of the fields and values in rule files, including those that are reserved for later versions."""

from __future__ import annotations

from typing import Final

#: The fields of each kind of mapping in a rule file. The keys appear in error messages.
FIELDS: Final = {
    "a rule file": ("owners", "buses", "runners", "rules"),
    "an owner": ("published", "pending", "stored"),
    "a runner": ("mode", "streaming"),
    "streaming mode": ("task_duration", "batch_interval", "idle", "backlog"),
    "a bus": ("source", "owner", "retention", "weights", "max_backlog", "webhooks"),
    "a webhook": ("signature", "connection", "mapping"),
    "a webhook's mapping": ("type", "source", "id", "subject", "time"),
    "a source": ("type",),
    "a mapping": ("type", "source", "id", "subject", "time"),
    "a rule": (
        "description",
        "owner",
        "bus",
        "runner",
        "enabled",
        "pattern",
        "where",
        "priority",
        "concurrency",
        "pool",
        "expect",
        "pending",
        "tests",
        "targets",
    ),
    "pending deliveries": ("max",),
    "an expectation": ("matches", "dead_letter_rate", "transform_failure_rate", "fields"),
    "a field expectation": ("null_rate", "value"),
    "bounds": ("at_least", "at_most"),
    "a test": ("event", "matches", "outputs"),
    "a target": (
        "type",
        "transform",
        "retry",
        "errors_tolerance",
        "ordering_key",
        "disable_after",
        "rate",
        "not_before",
        "deliver_between",
        "deliver_within",
        "shadow_of",
        "dead_letter_queue",
    ),
    "a dead letter queue": ("type", "retry"),
    "a timeout": ("total", "connect"),
    "a delivery window": ("hours", "weekdays", "time_zone", "blackout_dates"),
    "a batch": ("count", "bytes"),
    "a signature": ("headers",),
    "a handshake": ("origin",),
    "a transform": ("form", "value", "template", "steps", "missing", "content_type"),
    "a retry policy": (
        "policy",
        "max_retries",
        "initial_delay",
        "multiplier",
        "max_delay",
        "jitter",
        "maximum_event_age",
    ),
}

#: The built-in forms of transforms.
FORMS: Final = ("ORIGINAL", "CONSTANT", "JSONPATH", "TEMPLATE", "FIELDS", "JSONATA", "SQL")
#: The types reserved for later versions.
SOURCE_TYPES_LATER: Final = ("files",)
TARGET_TYPES_LATER: Final = ("sqs",)
ERRORS_TOLERANCE: Final = ("all", "none")
SIGNATURES: Final = ("github", "stripe", "standard")
MODES: Final = ("batch", "streaming")
CONTENT_MODES: Final = ("structured", "binary", "data")
#: The sets of headers with the id, time and signature of a request; the first is the default.
SIGNATURE_HEADERS: Final = ("standard", "svix")
#: The ways in which bodies of http requests can be compressed; the first is the default.
COMPRESSIONS: Final = ("none", "gzip")
#: The ways in which an sql target can treat members without a column; the first is the default.
NEW_COLUMNS: Final = ("refuse", "ignore", "add")
#: The methods of http requests; the first is the default.
METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
PRIORITIES: Final = ("high", "medium", "low")
POLICIES: Final = ("EXPONENTIAL_DECAY_RETRY", "BACKOFF_RETRY", "custom")
POLICY_ALIASES: Final = {"REGULAR_INTERVAL_RETRY": "BACKOFF_RETRY"}

#: The fields of a target's type that a dead letter queue does not have, because dead letters are sent as they are,
#: one per request.
NOT_FOR_QUEUES: Final = ("content_mode", "batch", "handshake")
#: The fields of a target that a shadow does not have, because each of its deliveries is tried once, immediately,
#: and its failures have no consequences.
NOT_FOR_SHADOWS: Final = (
    "retry", "errors_tolerance", "ordering_key", "disable_after", "not_before", "deliver_between", "deliver_within",
    "dead_letter_queue", "retry_on", "dead_letter_on",
)  # fmt: skip
#: Those fields of a retry policy that only the `custom` policy has.
CUSTOM_ONLY: Final = ("max_retries", "initial_delay", "multiplier", "max_delay", "jitter")
