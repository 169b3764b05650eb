"""The rule set that new batches take, and the changes of rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class RulesInForce:
    """The last rule set without an error: its hash, each runner's bus, and since when it is in force.

    `streaming_task_seconds`: the seconds of a streaming task, by runner in streaming mode. `errors`: the messages about
    errors of newer files; () = the current files are in force.
    """

    rule_set: str
    runners: Mapping[str, str]
    since: datetime
    errors: tuple[str, ...] = ()
    streaming_task_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleChange:
    """A rule that a rule set added, changed or removed; `version` "" = it was removed."""

    rule: str
    version: str
    rule_set: str
    at: datetime
