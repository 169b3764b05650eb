"""Counts what needs attention, for the navigation of every page."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from eventbridge.runtime.runtime import Runtime
from eventbridge.views.status import rules_on_hold
from eventbridge.views.target_status import target_standings
from eventbridge.views.timeline import Period, totals

_DAY: Final = timedelta(hours=24)


class Attention(NamedTuple):
    """How many things of one page need attention, and what they are."""

    number: int
    what: str


def attention(runtime: Runtime) -> dict[str, Attention]:
    """Return what needs attention by the path of its page. Dead letters have no owner, so that owners see no count."""
    rules = runtime.rule_set()
    unhealthy = sum(each.state != "ok" and each.rule in rules.rules for each in target_standings(runtime))
    on_hold = len({each.rule for each in rules_on_hold(runtime, rules) if each.rule in rules.rules})
    now = runtime.clock()
    dead = totals(runtime, Period(now - _DAY, now)).failed if runtime.owners is None else 0
    counted = {
        "targets": Attention(unhealthy, "unhealthy targets"),
        "rules": Attention(on_hold, "rules on hold"),
        "dead-letters": Attention(round(dead), "dead letters in the last 24 hours"),
    }
    return {path: each for path, each in counted.items() if each.number}
