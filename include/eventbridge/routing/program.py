"""Compiles a rule set, once per process, into a program: its matcher and a renderer for each target."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from eventbridge.config.quantities import parse_duration
from eventbridge.errors import TransformFailed
from eventbridge.event.json_document import JsonValue
from eventbridge.matching import Matcher, compile_rules
from eventbridge.matching.pattern import Pattern, parse_pattern
from eventbridge.policy.delivery_windows import next_opening
from eventbridge.rules import Rule, RuleSet, Target
from eventbridge.rules.model import DeliverBetween
from eventbridge.transform import Renderer, compile_transform
from eventbridge.transform.jsonpath import MISSING, Path, parse_path
from eventbridge.transform.kernel.ids import DeliveryIds
from eventbridge.transform.kernel.program import Program, compile_program
from eventbridge.transform.kernel.render import Renderers

#: The number of programs that a process caches. A program of 10,000 rules takes 60 MB, its rules take 35 MB, and its
#: classes grow to 64 MB at most. A worker serves one runner, which may alternate between two batches: new events, and a
#: replay with its own rule set. A third program, such as that of a previous rule set or a canary, is not needed again
#: soon.
KEPT_PROGRAMS: Final = 2
_programs: dict[tuple[str, str], RouteProgram] = {}
_listeners: list[Callable[[str, RuleSet, str, float], None]] = []

#: The maximum time between an event's arrival and a `not_before` time in the event.
_FURTHEST: Final = timedelta(days=366)
_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True)
class Route:
    """One target of one rule; `rule_number` is the rule's index in `RouteProgram.rules`."""

    rule_number: int
    rule: Rule
    target: Target
    program: Program

    @cached_property
    def name(self) -> str:
        """Return the target's name in a manifest, `<rule>/<target>`."""
        return f"{self.rule.name}/{self.target.name}"

    @cached_property
    def head(self) -> tuple[str, int, str, str]:
        """Return the head of the route's pieces: pool, weight, rule, target."""
        return self.rule.pool_name, self.rule.weight, self.rule.name, self.target.name

    @cached_property
    def waiting(self) -> WaitingTimes | None:
        """Return the waiting times of the target's deliveries; None if they never wait."""
        return WaitingTimes.from_target(self.target)

    @cached_property
    def renderer(self) -> Renderer:
        """Return the renderer for deliveries that compiled code hands back."""
        return compile_transform(self.target.transform, content_mode=self.target.content_mode)


class RouteProgram:
    """The compiled form of the enabled rules of a rule set, and of the targets of those rules that are not budgeted.

    `routes` are in the order of a delivery file: by pool, rule and target. `budgeted` has the numbers of the budgeted
    rules by name. `ids_of` returns the generator of delivery ids for a replay ("" for none), the only part that differs
    between replays. For rules that did not change, parts of the `previous` program are reused.
    """

    def __init__(self, rules: Sequence[Rule], bus: str, previous: RouteProgram | None = None) -> None:
        self.rules = tuple(rules)
        self.bus = bus
        stayed = _ReusedParts(previous)
        self._numbers = {rule.name: number for number, rule in enumerate(rules)}
        self.budgeted = {rule.name: number for number, rule in enumerate(rules) if rule.is_budgeted}
        routes = [
            Route(number, rule, target, stayed.program(rule, target, bus) or _program(rule, target, bus))
            for number, rule in enumerate(rules)
            if rule.name not in self.budgeted
            for target in rule.targets.values()
        ]
        self.routes = tuple(sorted(routes, key=lambda each: (each.rule.pool_name, each.rule.name, each.target.name)))
        self.rule_of_route: npt.NDArray[np.int64] = np.array([each.rule_number for each in self.routes], np.int64)
        self.patterns: tuple[Pattern, ...] = tuple(
            stayed.pattern(rule) or parse_pattern(rule.pattern) for rule in rules
        )
        same = stayed.matcher_of(self.patterns)
        self.matcher: Matcher = compile_rules(self.patterns, previous=stayed.matcher) if same is None else same
        self.renderers = Renderers([each.program for each in self.routes])
        names = [(each.rule.name, each.target.name) for each in self.routes]
        self.ids_of: Callable[[str], DeliveryIds] = lru_cache(KEPT_PROGRAMS)(partial(DeliveryIds, bus, names))

    def numbers_of(self, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of rules by name, omitting rules that the program does not have."""
        return {name: self._numbers[name] for name in names if name in self._numbers}


class _ReusedParts:
    """Finds the parts of the previous program that can be reused, rule by rule."""

    def __init__(self, previous: RouteProgram | None) -> None:
        self.matcher = None if previous is None else previous.matcher
        self._patterns = None if previous is None else previous.patterns
        self._bus = None if previous is None else previous.bus
        self._rules: dict[str, tuple[Rule, Pattern]] = {}
        self._routes: dict[tuple[str, str], Route] = {}
        if previous is not None:
            each = zip(previous.rules, previous.patterns, strict=True)
            self._rules = {rule.name: (rule, pattern) for rule, pattern in each}
            self._routes = {(route.rule.name, route.target.name): route for route in previous.routes}

    def matcher_of(self, patterns: tuple[Pattern, ...]) -> Matcher | None:
        return self.matcher if patterns == self._patterns else None

    def pattern(self, rule: Rule) -> Pattern | None:
        known, pattern = self._rules.get(rule.name, (None, None))
        return pattern if known is rule or (known is not None and known.pattern == rule.pattern) else None

    def program(self, rule: Rule, target: Target, bus: str) -> Program | None:
        route = self._routes.get((rule.name, target.name))
        # Targets that compare equal may spell a number differently and so deliver it differently, unless the rule
        # version is equal.
        if route is None or bus != self._bus:
            return None
        same = route.target is target or (route.rule.version == rule.version and route.target == target)
        return route.program if same else None


def on_compiled(listener: Callable[[str, RuleSet, str, float], None]) -> None:
    """Call `listener` with hash, rule set, bus and CPU-seconds whenever this process or a fork of it compiles a rule
    set."""
    _listeners.append(listener)


def route_program(rule_set_hash: str, rule_set: RuleSet, bus: str) -> RouteProgram:
    """Return the program of a rule set, which is cached for the next slices."""
    key = (rule_set_hash, bus)
    kept = list(_programs.items())  # other threads may run this too; each step is atomic
    # Not the program of another bus, such as the canary's, because no part of it can be reused.
    previous = next((program for (_, of_bus), program in reversed(kept) if of_bus == bus), None)
    program = _programs.pop(key, None) or _compile(rule_set_hash, rule_set, bus, previous)
    _programs[key] = program
    for oldest, _ in kept[: max(0, len(_programs) - KEPT_PROGRAMS)]:
        _programs.pop(oldest, None)
    return program


def _compile(rule_set_hash: str, rule_set: RuleSet, bus: str, previous: RouteProgram | None) -> RouteProgram:
    began = time.process_time()
    program = RouteProgram(list(rule_set.enabled().values()), bus, previous)
    for listener in _listeners:
        listener(rule_set_hash, rule_set, bus, time.process_time() - began)
    return program


def _program(rule: Rule, target: Target, bus: str) -> Program:
    return compile_program(target.transform, target.content_mode, rule.name, bus, target.name)


@dataclass(frozen=True)
class WaitingTimes:
    """The time until which a target's deliveries wait: a time in the event, a number of seconds after its arrival, or
    the next opening of a delivery window."""

    path: Path | None
    seconds: float
    window: DeliverBetween | None

    @classmethod
    def from_target(cls, target: Target) -> WaitingTimes | None:
        """Return the waiting times of a target; None if its deliveries never wait."""
        asked, window = target.not_before, target.deliver_between
        if asked is None and window is None:
            return None
        if asked is not None and asked.startswith("$"):
            return cls(parse_path(asked), 0.0, window)
        return cls(None, parse_duration(asked) if asked else 0.0, window)

    def not_before(self, arrived_at: datetime, document: Callable[[], JsonValue]) -> datetime | None:
        """Return the earliest time at which a delivery may be sent, rounded up to a second; None if it may be sent on
        arrival.

        The time depends only on the event and the rule, so that every attempt at a slice gives the same result.
        `document` is called only if the time is in the event. Raises TransformFailed if the value in the event is not a
        time, or is too far ahead.
        """
        first = arrived_at + timedelta(seconds=self.seconds)
        if self.path is not None:
            first = max(first, _time_in(self.path, document(), arrived_at) or first)
        if first > arrived_at and first.microsecond:
            first = first.replace(microsecond=0) + timedelta(seconds=1)
        if self.window is not None:
            first = next_opening(self.window, first)
        return first if first > arrived_at else None


def _time_in(path: Path, document: JsonValue, arrived_at: datetime) -> datetime | None:
    value = path.find(document)
    if value is MISSING or value is None:
        return None
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise TransformFailed(f"not_before: {path.text} is not an RFC 3339 time, such as 2026-12-24T18:00:00Z")
    try:
        found = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TransformFailed(f"not_before: {path.text} is {value}, which is not a valid time") from error
    if found - arrived_at > _FURTHEST:
        raise TransformFailed(f"not_before: {path.text} is {value}, more than {_FURTHEST.days} days ahead")
    return found
