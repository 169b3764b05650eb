"""Which rule set new batches take, and how rules came to be as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class RulesInForce:
    """The last rule files without an error: their hash, each runner's bus, and since when they are in force.

    `streaming_task_seconds` are the seconds of a streaming task, of the runners in streaming mode. `errors` are those
    of newer files, as they are told to people; () = today's files are in force.
    """

    rule_set: str
    runners: Mapping[str, str]
    since: datetime
    errors: tuple[str, ...] = ()
    streaming_task_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleChange:
    """A rule that came, changed or went with a rule set; `version` "" = it went."""

    rule: str
    version: str
    rule_set: str
    at: datetime
