"""Defines the immutable values of rule files: owners, runners, buses, rules, targets, transforms, retry policies.

`eventbridge.rules.load` creates them from YAML. `RuleSet.from_json` and `RuleSet.from_lines` create them from their
frozen forms. Every stage uses them. The loader checks ranges and names; the models do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, cast

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from eventbridge.event.json_document import as_document, as_json_value, write_document
from eventbridge.rules.frozen import FrozenModel, content_of
from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES


class Owner(FrozenModel):
    """The quotas of one owner; None means unlimited.

    `published_per_second` is how many events per second the API accepts for the owner's buses. `pending_max` is the
    maximum number of pending deliveries of the owner's rules; further matches are deferred. `stored_bytes` is how much
    data the owner may store before ingestion from the owner's buses stops.
    """

    published_per_second: float | None = None
    pending_max: int | None = None
    stored_bytes: int | None = None


class StreamingTimes(FrozenModel):
    """The timing settings of a streaming runner, in seconds."""

    task_duration: float = 600.0  # how long a streaming task runs
    batch_interval: float = 10.0  # how long a batch stays open after its first event
    idle: float = 120.0  # how long a streaming task runs without events before it ends
    backlog: float = 20.0  # events older than this at the start of a streaming task become a batch for Spark


class Runner(FrozenModel):
    """The configuration of one runner from the rule files."""

    mode: Literal["batch", "streaming"] = "batch"
    streaming: StreamingTimes = Field(default_factory=StreamingTimes)


class Webhook(FrozenModel):
    """One webhook; `connection` is the id of the connection with its signing secrets.

    `mapping` gives the value of each event attribute, as literal text or as a path such as `$.id` into a call's JSON.
    """

    signature: Literal["github", "stripe", "standard"]
    connection: str
    mapping: Mapping[str, str] = Field(default_factory=dict)


class HasWebhooks(Protocol):
    """A bus with webhooks."""

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """The webhooks by name."""


def webhook_conflicts(buses: Mapping[str, HasWebhooks]) -> Iterator[tuple[str, str, str]]:
    """Yield each webhook whose name an earlier bus also uses, as (bus, name, earlier bus)."""
    seen: dict[str, str] = {}
    for bus, found in buses.items():
        for name in found.webhooks:
            if seen.setdefault(name, bus) != bus:
                yield bus, name, seen[name]


class Bounds(FrozenModel):
    """A range that includes both ends; an end that is None is unbounded."""

    at_least: float | None = None
    at_most: float | None = None

    def is_met_by(self, value: float) -> bool:
        """Return whether a value is within the range."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


class FieldExpectation(FrozenModel):
    """The expectations for one field, over the matched events of an hour.

    `null_rate` bounds the share of events in which the field is missing or null; `value` bounds the field's
    value in events in which it is a number.
    """

    null_rate: Bounds | None = None
    value: Bounds | None = None


class Expect(FrozenModel):
    """The expectations of a rule; one that is None is not set.

    Three apply to each batch: `matches` bounds the number of matched events, `dead_letter_rate` bounds the share of
    dead letters among deliveries with a final status, and `transform_failure_rate` bounds the share of deliveries whose
    transform fails. `fields` maps paths to expectations that apply to each hour.
    """

    matches: Bounds | None = None
    dead_letter_rate: Bounds | None = None
    transform_failure_rate: Bounds | None = None
    fields: Mapping[str, FieldExpectation] = Field(default_factory=dict)


#: The weekdays, as written in rule files.
WEEKDAYS: tuple[str, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: The default hours of a window.
WHOLE_DAY = "00:00-24:00"


class DeliverBetween(FrozenModel):
    """A delivery window in the local time of an IANA `time_zone`; see `eventbridge.policy.delivery_windows`.

    `hours` is `HH:MM-HH:MM`; the end is exclusive, and falls on the next day if it is earlier than the start.
    `weekdays` are the days on which a window starts. On `blackout_dates` (`YYYY-MM-DD`) nothing is sent from midnight
    to midnight.
    """

    hours: str = WHOLE_DAY
    weekdays: tuple[str, ...] = WEEKDAYS
    time_zone: str
    blackout_dates: tuple[str, ...] = ()


class DeliverWithin(FrozenModel):
    """The maximum time between publishing an event and sending its delivery, in wall-clock seconds."""

    seconds: float


Priority = Literal["high", "medium", "low"]
PolicyName = Literal["BACKOFF_RETRY", "EXPONENTIAL_DECAY_RETRY", "custom"]

DAY_SECONDS = 86_400.0

#: The Airflow priority weight for a rule's push tasks, by the rule's priority.
WEIGHTS: dict[Priority, int] = {"high": 750, "medium": 500, "low": 250}

#: The Airflow pools, one per priority, shared by the rules that have no pool of their own.
PRIORITY_POOLS: frozenset[str] = frozenset(f"eventbridge.{priority}" for priority in WEIGHTS)


#: The transform forms whose evaluation is fast; all others are programs, written by the user or of a plug-in.
FAST_FORMS = frozenset({"ORIGINAL", "CONSTANT", "JSONPATH", "TEMPLATE", "FIELDS"})


class EventMapping(FrozenModel):
    """The mapping of a plain JSON message to an event; text that begins with `$.` is a path into the message."""

    type: str
    source: str
    id: str | None = None
    subject: str | None = None
    time: str | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """Return the text or path of each attribute that the mapping sets."""
        return {name: text for name in type(self).model_fields if (text := getattr(self, name)) is not None}


class Source(FrozenModel):
    """The source of a bus, with the fields that all types share; the model of each type adds its own fields.

    `start_at` is where a new consumer group starts.
    """

    LATER: ClassVar[tuple[str, ...]] = ("mapping", "offset_reset", "tombstones")
    SHARED_WORDS: ClassVar[tuple[str, ...]] = ("topics", "start_at")  # of these fields, those of a type by default

    type: str
    topics: tuple[str, ...] = ("events",)
    start_at: Literal["latest", "earliest"] | datetime = "latest"
    mapping: EventMapping | None = None  # for messages that are JSON, but not CloudEvents
    offset_reset: Literal["fail", "earliest", "latest"] = (
        "earliest"  # where to continue if retention deleted the next offset
    )
    tombstones: Literal["ignore", "deliver", "dead_letter"] = "ignore"  # messages without a value

    @property
    def is_queue(self) -> bool:
        """Return whether the topics are queues, which deliver a message again until it is acknowledged."""
        return False


def as_source(value: Any) -> Any:
    """Convert a dict of a source's fields to the model of its type; return anything else unchanged (for pydantic).

    If the package of its type cannot be used, or does not accept the fields, the source fails when it is opened.
    """
    return SOURCE_TYPES.in_force(value) if isinstance(value, dict) else value


class QueueFields(Source):
    """The fields of a source that is a queue, from which a plug-in receives messages."""

    SHARED_WORDS: ClassVar[tuple[str, ...]] = ("mapping",)

    @property
    def is_queue(self) -> bool:
        """Return True."""
        return True


class UnusableSource(Source):
    """The source of a bus in force whose type has lost its package; it keeps the fields of the type as they are."""

    model_config = ConfigDict(extra="allow")


class Bus(FrozenModel):
    """A named stream of events; `retention_seconds` is how long its archive is kept.

    `max_backlog` is the number of unprocessed events above which the API rejects further ones; None means unlimited.
    `owner` is the team that owns the bus and each rule on it that sets no other owner; None if no team does.
    `weights` are the relative shares of topics in a batch while a backlog exists; a topic not listed has weight 1.
    """

    LATER: ClassVar[tuple[str, ...]] = ("max_backlog", "owner", "webhooks", "weights")

    name: str
    source: Annotated[Source, BeforeValidator(as_source)] = Field(
        default_factory=lambda: cast(Source, as_source({"type": "embedded"}))
    )
    retention_seconds: float = 30 * DAY_SECONDS
    max_backlog: int | None = None
    owner: str | None = None
    webhooks: Mapping[str, Webhook] = Field(default_factory=dict)
    weights: Mapping[str, int] = Field(default_factory=dict)


class Transform(FrozenModel):
    """The definition of the output for a target; `eventbridge.transform` implements the forms.

    Numbers inside `value` and `steps` are `eventbridge.event.json_document.Number`, which keeps them exactly as
    written.
    """

    LATER: ClassVar[tuple[str, ...]] = ("content_type",)

    form: str = "ORIGINAL"
    value: Annotated[Any, BeforeValidator(as_json_value)] = None
    template: str | None = None
    steps: Annotated[Any, BeforeValidator(as_json_value)] = None
    missing: Literal["null", "skip", "error"] = "null"
    content_type: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _skip_in_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("form") == "FIELDS" and given.get("missing") is None:
            return {**given, "missing": "skip"}
        return given


def queue_of(target: str) -> str:
    """Return the name of a target's dead letter queue; it contains a slash, so no target can have the same name."""
    return f"{target}/dead_letter_queue"


class RetryPolicy(FrozenModel):
    """The retries of a failed delivery: their number and their delays.

    The n-th retry follows the n-th failed attempt after `min(initial_delay * multiplier ** (n - 1), max_delay)`
    seconds, multiplied by a random factor from 1 - jitter to 1 + jitter: 10-20 s for BACKOFF_RETRY; 1, 2, 4 ... 512 s
    for EXPONENTIAL_DECAY_RETRY. `max_retries` does not count the first attempt. The first two policies behave as in
    Alibaba EventBridge; `custom` is set by the user.
    """

    policy: PolicyName = "EXPONENTIAL_DECAY_RETRY"
    max_retries: int = 176
    initial_delay_seconds: float = 1.0
    multiplier: float = 2.0
    max_delay_seconds: float = 512.0
    jitter: float = 0.0
    maximum_event_age_seconds: float = DAY_SECONDS

    @classmethod
    def from_name(cls, policy: PolicyName, maximum_event_age_seconds: float = DAY_SECONDS) -> RetryPolicy:
        """Return the policy with the given name; `custom` defaults to 3 retries, the first after 1 s, doubling, with
        ±20 % jitter."""
        numbers: dict[PolicyName, tuple[int, float, float, float, float]] = {
            "BACKOFF_RETRY": (3, 15.0, 1.0, 15.0, 1 / 3),
            "EXPONENTIAL_DECAY_RETRY": (176, 1.0, 2.0, 512.0, 0.0),
            "custom": (3, 1.0, 2.0, 512.0, 0.2),
        }
        max_retries, initial_delay, multiplier, max_delay, jitter = numbers[policy]
        return cls(
            policy=policy,
            max_retries=max_retries,
            initial_delay_seconds=initial_delay,
            multiplier=multiplier,
            max_delay_seconds=max_delay,
            jitter=jitter,
            maximum_event_age_seconds=maximum_event_age_seconds,
        )


class StatusRules(FrozenModel):
    """The HTTP statuses that a target retries or dead-letters, whatever their usual outcome.

    Each is a status or a range, both ends included: `429`, `500-599`. No status may be in both `retry_on` and
    `dead_letter_on`.
    """

    retry_on: tuple[str, ...] = ()
    dead_letter_on: tuple[str, ...] = ()

    @cached_property
    def _ranges(self) -> tuple[tuple[range, bool], ...]:
        words = [*((word, True) for word in self.retry_on), *((word, False) for word in self.dead_letter_on)]
        return tuple((_statuses(word), is_retried) for word, is_retried in words)

    def retries(self, status: int | None) -> bool | None:
        """Return whether a response with the given status is retried, or None if the status has its usual outcome."""
        if status is None:
            return None
        return next((is_retried for statuses, is_retried in self._ranges if status in statuses), None)


def _statuses(word: str) -> range:
    first, _, last = word.partition("-")
    return range(int(first), int(last or first) + 1)


def as_target(value: Any) -> Any:
    """Convert a dict of a target's fields to the model of its type; return anything else unchanged (for pydantic).

    If the package of its type cannot be used, or does not accept the fields, the target fails when it is opened.
    """
    return TARGET_TYPES.in_force(value) if isinstance(value, dict) else value


class Target(FrozenModel):
    """A target of a rule, with the fields that all types share; the model of each type adds its own fields.

    `timeout_seconds` limits one attempt. `ordering_key` is a JSONPath or `partition`. `not_before` is a path to a time
    in the event, or a duration after the event's arrival. `deliver_within` is measured from the event's publication.
    """

    name: str
    type: str
    transform: Transform = Transform()
    retry: RetryPolicy = RetryPolicy()
    errors_tolerance: Literal["all", "none"] = "all"
    ordering_key: str | None = None
    content_mode: Literal["structured", "binary", "data"] = "structured"
    timeout_seconds: float = 10.0
    max_in_flight: int = 32
    # receives a copy of each dead letter; its name is `queue_of(target)`
    dead_letter_queue: Annotated[Target | None, BeforeValidator(as_target)] = None
    disable_after_seconds: float | None = None
    rate_per_second: float | None = None
    not_before: str | None = None
    deliver_between: DeliverBetween | None = None
    deliver_within: DeliverWithin | None = None
    shadow_of: str | None = None  # receives the same events as that target; its failures are only recorded

    def with_rate(self, per_second: float | None) -> Self:
        """Return a copy of the target with this rate, as set by an override; None means no limit."""
        return self if per_second == self.rate_per_second else self.model_copy(update={"rate_per_second": per_second})

    @property
    def ordered(self) -> bool:
        """Whether deliveries with the same key are sent one at a time. With `errors_tolerance: none`, all share one
        key."""
        return self.ordering_key is not None or self.errors_tolerance == "none"

    @property
    def deliver_within_seconds(self) -> float | None:
        """The maximum number of seconds between an event's publication and the sending of a delivery; None if
        unlimited."""
        return self.deliver_within.seconds if self.deliver_within is not None else None


class UnusableTarget(Target):
    """The target of a rule in force whose type has lost its package; it keeps the fields of the type as they are."""

    model_config = ConfigDict(extra="allow")


#: The default maximum number of pending deliveries of one rule.
PENDING_MAX = 1_000_000


class Rule(FrozenModel):
    """A rule, which delivers to its targets the events of a bus that match a pattern.

    `pattern` is the pattern's JSON; its numbers are `event.json_document.Number`, which keeps them exactly as written.
    `where` is a Spark SQL condition on the events that the pattern matches, or None.
    `expect` holds the rule's expectations; if one fails, the rule's later deliveries are put on hold.
    `owner` is the team that owns the rule; None means the owner of the bus.
    `pending_max` is how many of the rule's deliveries may be pending before new matches are deferred.
    `version` is a hash of all other fields; it is computed if it is not given.
    """

    LATER: ClassVar[tuple[str, ...]] = ("owner",)

    name: str
    bus: str
    runner: str
    pattern: Annotated[dict[str, Any], BeforeValidator(as_document)]
    targets: Mapping[str, Annotated[Target, BeforeValidator(as_target)]]
    where: str | None = None
    description: str = ""
    owner: str | None = None
    enabled: bool = True
    priority: Priority = "medium"
    concurrency: int | None = None
    pool: str | None = None
    expect: Expect | None = None
    pending_max: int = PENDING_MAX
    version: str = ""

    @model_validator(mode="after")
    def _make_version(self) -> Self:
        if not self.version:
            content = write_document({key: value for key, value in content_of(self).items() if key != "version"})
            object.__setattr__(self, "version", hashlib.blake2b(content.encode(), digest_size=6).hexdigest())
        return self

    @property
    def destinations(self) -> dict[str, Target]:
        """Return the targets and their dead letter queues, by name."""
        copies = (target.dead_letter_queue for target in self.targets.values())
        return {**self.targets, **{copy.name: copy for copy in copies if copy is not None}}

    @property
    def pool_name(self) -> str:
        """Return the Airflow pool of the rule's pushes: `pool` if set, else the rule's own pool if `concurrency`
        is set, else the pool of its priority."""
        if self.pool is not None:
            return self.pool
        return f"eventbridge.rule.{self.name}" if self.concurrency is not None else f"eventbridge.{self.priority}"

    @property
    def is_budgeted(self) -> bool:
        """Whether routing the rule may take arbitrarily long, so that it has a time budget in each batch."""
        return self.in_sql or any(target.transform.form not in FAST_FORMS for target in self.targets.values())

    @property
    def in_sql(self) -> bool:
        """Whether routing the rule needs Spark SQL, for `where` or for an SQL transform."""
        return self.where is not None or any(target.transform.form == "SQL" for target in self.targets.values())

    @property
    def weight(self) -> int:
        """Return Airflow's priority weight: 750, 500 or 250."""
        return WEIGHTS[self.priority]
