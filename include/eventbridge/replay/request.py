"""Reads and checks the request for a replay before anything is recorded: times, rules, targets, conditions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from eventbridge.errors import PatternError, UserError
from eventbridge.matching.pattern.rule_patterns import rule_pattern_errors
from eventbridge.rules import RuleSet
from eventbridge.rules.bounds import parse_sent_pattern
from eventbridge.runtime.time_range import time_range
from eventbridge.similar_names import suggest
from eventbridge.store.queries import COLUMNS, rows_where

#: The rules that route the events of a replay: the current ones, or those that the archived batches were planned with.
AsOf = Literal["current", "original"]

_LOWEST_RATE = 0.1
_EXAMPLE = '{"type": ["order.placed"]}'
_HIGHEST_RATE = 1_000_000.0


@dataclass(frozen=True)
class ReplayRequest:
    """The checked request for a replay: which events of a bus, for which rules and targets, and how.

    The replay takes events of batches planned from `since` (included) to `until` (excluded). Empty `rules` or `targets`
    mean all. `rate` is in deliveries per second.
    """

    bus: str
    since: datetime
    until: datetime
    rules: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    pattern: str | None = None  # JSON
    sql: str | None = None
    as_of: AsOf = "current"
    new_ids: bool = True
    skip_delivered: bool = False
    rate: float | None = None

    @property
    def by_target(self) -> bool:
        """Whether events are chosen for each target separately, by the outcome of its deliveries."""
        return self.skip_delivered or self.sql is not None

    def as_json(self) -> dict[str, Any]:
        """Return the fields that choose events and deliveries, as JSON values."""
        values: dict[str, Any] = {"rules": list(self.rules), "targets": list(self.targets), "pattern": self.pattern}
        values["sql"] = self.sql
        return {key: value for key, value in values.items() if value} | {"as_of": self.as_of}


@dataclass(frozen=True)
class WrittenReplayRequest:
    """A request for a replay as a person wrote it; an empty string counts as not written.

    Times are ISO 8601, in UTC unless they have an offset, or ages such as `2h`. If `until` is None, the replay takes
    events up to now. `pattern` is JSON text, or the value of such a text.
    """

    bus: str
    since: str | None
    until: str | None = None
    rules: Sequence[str] = ()
    targets: Sequence[str] = ()
    pattern: str | Mapping[str, Any] | None = None
    sql: str | None = None
    as_of: str = "current"
    new_ids: bool = True
    skip_delivered: bool = False
    rate: float | None = None

    def read(self, now: datetime, rules: RuleSet) -> ReplayRequest:
        """Return the checked request; `rules` are the current ones.

        Raises UserError, with a remedy, for an invalid value and for an unknown bus, rule or target.
        """
        if self.bus not in rules.buses:
            raise UserError(f"no rule file defines a bus {self.bus!r}. {suggest('Buses', self.bus, rules.buses)}")
        first, last = time_range(now, self.since, self.until)
        if self.as_of not in ("current", "original"):
            raise UserError(
                f"unknown choice of rules {self.as_of!r}. Write current, or original (the rules that routed the events)"
            )
        if self.rate is not None and not (math.isfinite(self.rate) and _LOWEST_RATE <= self.rate <= _HIGHEST_RATE):
            raise UserError(
                f"a rate of {self.rate:g} deliveries per second cannot be kept. "
                f"Write a rate from {_LOWEST_RATE:g} to {_HIGHEST_RATE:,.0f}, or none."
            )
        request = ReplayRequest(
            bus=self.bus,
            since=first,
            until=last,
            rules=tuple(dict.fromkeys(self.rules)),
            targets=tuple(dict.fromkeys(self.targets)),
            pattern=_pattern(self.pattern),
            sql=_condition(self.sql),
            as_of="original" if self.as_of == "original" else "current",
            new_ids=self.new_ids,
            skip_delivered=self.skip_delivered,
            rate=self.rate,
        )
        if request.as_of == "current":
            _refuse_unknown(rules, request)
        return request


def restricted(rules: RuleSet, bus: str, only_rules: Sequence[str] = (), only_targets: Sequence[str] = ()) -> RuleSet:
    """Return the enabled rules of a bus with only the named rules and targets; without names, all of them."""
    found = {}
    for name, rule in rules.enabled().items():
        if rule.bus != bus or (only_rules and name not in only_rules):
            continue
        targets = {key: each for key, each in rule.targets.items() if not only_targets or key in only_targets}
        if targets:
            found[name] = rule if len(targets) == len(rule.targets) else rule.model_copy(update={"targets": targets})
    buses = {bus: rules.buses[bus]} if bus in rules.buses else {}
    return RuleSet(buses=buses, rules=found, quotas=rules.quotas)


def refuse_unknown_original(request: ReplayRequest, frozen: Sequence[RuleSet]) -> None:
    """Raise UserError, with the most similar name, for a rule or target that no rule set of that time has."""
    rules = {name: each for of in frozen for name, each in of.rules.items() if each.bus == request.bus}
    for name in request.rules if frozen else ():
        if name not in rules:
            raise UserError(f"bus {request.bus!r} had no rule {name!r} at that time. {suggest('Rules', name, rules)}")
    targets = {key for name, each in rules.items() if name in (request.rules or rules) for key in each.targets}
    for name in request.targets if frozen else ():
        if name not in targets:
            raise UserError(f"no replayed rule had a target {name!r} at that time. {suggest('Targets', name, targets)}")


def _refuse_unknown(rules: RuleSet, request: ReplayRequest) -> None:
    of_bus = {name: rule for name, rule in rules.rules.items() if rule.bus == request.bus}
    for name in request.rules:
        if name not in of_bus:
            raise UserError(f"bus {request.bus!r} has no rule {name!r}. {suggest('Rules', name, of_bus)}")
        if not of_bus[name].enabled:
            raise UserError(f"rule {name!r} is disabled, and delivers nothing. Enable it until the replay has ended")
    chosen = [of_bus[name] for name in request.rules] or list(of_bus.values())
    known = {target for rule in chosen for target in rule.targets}
    for name in request.targets:
        if name not in known:
            raise UserError(f"no replayed rule has a target {name!r}. {suggest('Targets', name, known)}")


def _pattern(pattern: str | Mapping[str, Any] | None) -> str | None:
    """Return a pattern as JSON text, in which a number keeps all of its digits."""
    if not pattern:
        return None
    text = pattern if isinstance(pattern, str) else json.dumps(pattern)
    try:
        document = json.loads(text)
        errors = rule_pattern_errors(document) if isinstance(document, dict) else []
        if errors:
            raise errors[0]
        parse_sent_pattern(text)
    except ValueError as error:
        raise UserError(f"the pattern is not JSON: {error}. Write one such as '{_EXAMPLE}'") from None
    except PatternError as error:
        raise UserError(f"the pattern is invalid: {error}") from None
    except RecursionError:
        raise UserError(f"the pattern is nested too deeply. Write one such as '{_EXAMPLE}'") from None
    return text


def _condition(sql: str | None) -> str | None:
    """Return an SQL condition after evaluating it on an empty table. Raises UserError if that fails."""
    if not sql or not sql.strip():
        return None
    rows_where(COLUMNS.empty_table(), sql)
    return sql.strip()
