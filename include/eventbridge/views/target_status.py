"""Returns the status of targets, of current and of removed rules, for people to read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from eventbridge.model.pending import POOL_CLOSED
from eventbridge.model.rule_state import ShownState, TargetStatus
from eventbridge.policy.breaker import listed_state, pause_of
from eventbridge.rules.find import find_rule
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of

#: The reason that is shown for a target that is paused, but otherwise ok.
_PAUSED = "it asked for a pause (429)"
#: The reason that is shown for a target that is failing; the time since when is shown beside it.
_FAILING = "every attempt failed, and deliveries wait for a retry"


@dataclass(frozen=True)
class TargetStanding:
    """The status of one target.

    `since` is None for a target that has always been ok, and `failing_since` for one that is failing. `until`, `good`,
    `slow`, `failing_since` and `paused_until` are the fields of `rule_state.TargetStatus`; `paused_until` is None when
    the pause is over.
    """

    rule: str
    target: str
    state: ShownState
    reason: str
    since: datetime | None
    until: datetime | None
    good: int
    slow: bool
    failing_since: datetime | None
    paused_until: datetime | None


@dataclass(frozen=True)
class TargetLine(TargetStanding):
    """The status of one target; `waiting` is the number of its pending deliveries.

    `hold_reason` names the override, or the closed pool, that keeps deliveries to the target from being sent; "" if
    there is none. A target that has a hold reason, but is otherwise ok or failing, is in the `paused` state.
    """

    waiting: int
    hold_reason: str = ""


def _standing_of(status: TargetStatus, now: datetime, *, retries_wait: bool) -> TargetStanding:
    """Return the status of a target at the aware time `now`; `retries_wait` as in `breaker.listed_state`."""
    state = listed_state(status, now, retries_wait=retries_wait)
    standing = TargetStanding(**vars(status) | {"state": state, "paused_until": pause_of(status, now)})
    if state == "failing":
        return replace(standing, since=status.failing_since, reason=_FAILING)
    return replace(standing, reason=_PAUSED) if state == "paused" else standing


#: A page ends with the rule that brings it to this number of targets, so it may have more.
PAGE_TARGETS = 100


@dataclass(frozen=True)
class TargetPage:
    """A page of targets in the order of their names.

    The next page begins after the rule `cursor`; `cursor` is None if this is the last page. `unhealthy` has at most
    `PAGE_TARGETS` targets, of any rule, that are not ok.
    """

    unhealthy: tuple[TargetLine, ...]
    targets: tuple[TargetLine, ...]
    cursor: str | None


def target_standings(runtime: Runtime) -> list[TargetStanding]:
    """Return the status of each target that has at some time not been ok, or has asked for a pause."""
    now = runtime.ledger.now()
    retried = runtime.ledger.pending.failing_targets()
    return [
        _standing_of(status, now, retries_wait=key in retried)
        for key, status in runtime.ledger.targets.statuses().items()
    ]


def target_list(runtime: Runtime) -> list[TargetLine]:
    """Return a line for each target of the current rules, and for each target of removed rules that is not ok."""
    lines = _Lines(runtime)
    current = {(rule.name, target) for rule in runtime.rule_set().rules.values() for target in rule.targets}
    return [lines.line(*key) for key in sorted(current | lines.not_ok())]


def target_lines(runtime: Runtime, rule: str) -> list[TargetLine]:
    """Return a line for each target of a current rule. Raises NotFoundError if there is no such rule."""
    lines = _Lines(runtime)
    return [lines.line(rule, target) for target in sorted(find_rule(runtime.rule_set(), rule).targets)]


def target_page(runtime: Runtime, after: str = "", find: str = "") -> TargetPage:
    """Return a page of the targets of current rules whose names contain `find`, after the rule `after`."""
    lines, rules = _Lines(runtime), runtime.rule_set().rules
    names = sorted(name for name in rules if name > after and find in name)
    found: list[TargetLine] = []
    for number, name in enumerate(names):
        found += [lines.line(name, target) for target in sorted(rules[name].targets)]
        if len(found) >= PAGE_TARGETS and number + 1 < len(names):
            return TargetPage(lines.unhealthy(), tuple(found), name)
    return TargetPage(lines.unhealthy(), tuple(found), None)


class _Lines:
    """Makes lines for targets from the ledger's records, which are read once."""

    def __init__(self, runtime: Runtime) -> None:
        visibility = visibility_of(runtime)
        self._statuses = {
            key: each for key, each in runtime.ledger.targets.statuses().items() if visibility.rule(key[0])
        }
        self._overrides = runtime.ledger.overrides.get_effective()
        self._now = runtime.ledger.now()
        self._retried = runtime.ledger.pending.failing_targets()
        self._waiting: Counter[tuple[str, str]] = Counter()
        for row in runtime.ledger.pending.counts():
            self._waiting[row.rule, row.target] += row.count
        self._pool_closed = {
            (w.rule, w.target) for w in runtime.ledger.pending.waiting_targets() if w.hold_reason == POOL_CLOSED
        }

    def not_ok(self) -> set[tuple[str, str]]:
        """Return the targets that are not ok, of current and of removed rules."""
        return {key for key in self._statuses if self._standing(*key).state != "ok"}

    def unhealthy(self) -> tuple[TargetLine, ...]:
        """Return the lines of targets that are not ok, at most PAGE_TARGETS."""
        return tuple(self.line(*key) for key in sorted(self.not_ok())[:PAGE_TARGETS])

    def line(self, rule: str, target: str) -> TargetLine:
        """Return the status of one target."""
        hold_reason = self._overrides.hold_reason(rule, target) or (
            POOL_CLOSED if (rule, target) in self._pool_closed else ""
        )
        standing = self._standing(rule, target, is_held=bool(hold_reason))
        if hold_reason and standing.state == "ok":
            standing = replace(standing, state="paused")
        return TargetLine(**vars(standing), waiting=self._waiting[rule, target], hold_reason=hold_reason)

    def _standing(self, rule: str, target: str, *, is_held: bool = False) -> TargetStanding:
        status = self._statuses.get((rule, target))
        if status is None:
            return TargetStanding(rule, target, "ok", "", None, None, 0, False, None, None)
        return _standing_of(status, self._now, retries_wait=not is_held and (rule, target) in self._retried)
