"""Defines the rule set in force, and the state of each rule and target: holds, overrides, health."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from eventbridge.model.pending import EXPECTATION_FAILED, RULE_PAUSED, TARGET_PAUSED

#: The prefix of the reason of an `ExpectationHold`, in messages and in the event `rule.on_hold`.
EXPECTATION_HOLD = "expectation_failed"
OverrideKind = Literal["paused", "disabled", "priority", "rate"]
TargetState = Literal["ok", "degraded", "half-open", "disabled"]
#: The states that are shown to users. `paused` means that a target in the `ok` state asked for a pause (429), or that
#: an operator or a pool without slots keeps its deliveries on hold. `failing` means that the last attempts at a target
#: in the `ok` state all failed, and that its deliveries wait for a retry.
ShownState = Literal["ok", "failing", "paused", "degraded", "half-open", "disabled"]


@dataclass(frozen=True)
class RulesInForce:
    """The last rule set without an error: its hash, each runner's bus, and when it came into force.

    `streaming_task_seconds` is how long a streaming task runs, by runner in streaming mode. `errors` are the messages
    about errors in newer files; if there are none, the current files are in force.
    """

    rule_set: str
    runners: Mapping[str, str]
    since: datetime
    errors: tuple[str, ...] = ()
    streaming_task_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleChange:
    """A rule that a rule set added, changed or removed; `version` is empty if it was removed."""

    rule: str
    version: str
    rule_set: str
    at: datetime


@dataclass(frozen=True)
class RuleOnHold:
    """A rule that is not routed, or whose deliveries are on hold: its version, the reason, and when the hold began."""

    rule: str
    version: str
    reason: str
    since: datetime


@dataclass(frozen=True)
class ExpectationHold:
    """A rule's hold because of a failed expectation, until an operator releases the rule: the failure, the place where
    it was found, and the time when the hold began.

    `found_in` is the id of a batch, or the hour of a quality check in ISO 8601.
    """

    rule: str
    detail: str
    found_in: str
    since: datetime

    @property
    def reason(self) -> str:
        """The reason of the hold, for messages."""
        return f"{EXPECTATION_HOLD}: {self.detail}"


@dataclass(frozen=True)
class OperatorOverride:
    """An override, who set it, and when. It applies until it is cleared.

    `target` is empty if the override is for the rule and so for all its targets. `value` is the name of a priority, or
    a decimal number of deliveries per second; it is empty for other kinds.
    """

    rule: str
    target: str
    kind: OverrideKind
    value: str
    set_by: str
    since: datetime


class OperatorOverrides:
    """All overrides at one moment, and the rules on hold that an operator must release."""

    def __init__(self, values: Mapping[tuple[str, str, str], str] | None = None, on_hold: Collection[str] = ()) -> None:
        """The arguments are the values of overrides by (rule, target, kind), and the rules with a failed
        expectation."""
        self._values = dict(values or {})
        self._on_hold = frozenset(on_hold)

    def __bool__(self) -> bool:
        """Return whether any override is set, or any rule is on hold."""
        return bool(self._values or self._on_hold)

    @property
    def holds(self) -> bool:
        """Whether anything is paused or on hold."""
        return bool(self._on_hold) or any(kind == "paused" for _, _, kind in self._values)

    def hold_reason(self, rule: str, target: str) -> str:
        """Return why a target is on hold: it is paused, or its rule is paused or on hold. "" means that it is not."""
        if (rule, "", "paused") in self._values:
            return RULE_PAUSED
        if (rule, target, "paused") in self._values:
            return TARGET_PAUSED
        return EXPECTATION_FAILED if rule in self._on_hold else ""

    def disabled_rules(self) -> set[str]:
        """Return the rules that operators disabled, which match no event."""
        return {rule for rule, _, kind in self._values if kind == "disabled"}

    def priorities(self) -> dict[str, str]:
        """Return, by rule, the priority that overrides the one in its file."""
        return {rule: value for (rule, _, kind), value in self._values.items() if kind == "priority"}

    def rate(self, rule: str, target: str, file_rate: float | None) -> float | None:
        """Return how many deliveries per second a target may get: the rate of its override, else `file_rate`."""
        value = self._values.get((rule, target, "rate"))
        return file_rate if value is None else float(value)


@dataclass(frozen=True)
class TargetStatus:
    """The status of a target, and when its state began.

    If it is `degraded`, its breaker is open or it was too slow: nothing is sent before `until`; after that, only probes
    are sent, or all deliveries in the slow lane if it is `slow`. If it is `half-open`, its last probes were good. If it
    is `disabled`, it responded that it is gone or failed for too long, and its deliveries are on hold. `since` stays
    the same between degraded and half-open. `until` of an ok target is the end of the period after a recovery in which
    its rate rises. `good` counts good probes. A target is `slow` if its responses are slow, or if a request had no
    response in time. Its deliveries are then sent in the slow lane, separately from those for other targets, and `good`
    counts its consecutive quick chunks. `failing_since` is the time of its first failed attempt since the last
    successful one. In any state, `paused_until` is the end of a pause that the target asked for (429); nothing is sent
    before this time.
    """

    rule: str
    target: str
    state: TargetState
    reason: str
    since: datetime
    until: datetime | None = None
    good: int = 0
    slow: bool = False
    failing_since: datetime | None = None
    paused_until: datetime | None = None
