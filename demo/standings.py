"""How the targets stand when the demo ends: printed, and compared with what their servers are made to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from demo.receipts import receiver_path
from eventbridge.decision.breaker import LEAST_ATTEMPTS
from eventbridge.model.target_state import TargetState, TargetStatus
from eventbridge.rule import RuleSet

#: How a target must stand at last, by the first part of its path at the receiver.
_EXPECTED: Mapping[str, TargetState] = {"flaky": "ok", "gone": "disabled", "hang": "degraded"}
#: With fewer deliveries, spread over batches, nothing speaks clearly against one that hangs.
_CLEAR = 2 * LEAST_ATTEMPTS

Key = tuple[str, str]


def standings(rules: RuleSet, statuses: Mapping[Key, TargetStatus]) -> Iterator[str]:
    """Yield a line for each target that is not ok, and one for the others."""
    well = 0
    for rule, target in _targets(rules):
        status = statuses.get((rule, target))
        if status is None or status.state == "ok":
            well += 1
        else:
            yield f"{rule}/{target}: {status.state} since {status.since:%H:%M:%S} UTC, {status.reason}"
    yield f"{well} others: ok"


def unexpected(rules: RuleSet, statuses: Mapping[Key, TargetStatus], matched: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with how targets stand; `matched` are deliveries by `<rule>/<target>`.

    The one that hangs was degraded, by its breaker or because it was waited for; the one that takes everything at the
    third try was not, or came back; the one that is gone is disabled.
    """
    for (rule, target), kind in _targets(rules).items():
        wanted, count = _EXPECTED.get(kind), matched.get(f"{rule}/{target}", 0)
        if wanted is None or count < (_CLEAR if wanted == "degraded" else 1):
            continue
        status = statuses.get((rule, target))
        state = status.state if status is not None else "ok"
        if state != wanted:
            reason = f" ({status.reason})" if status is not None and status.reason else ""
            yield f"{rule}/{target} is {state}{reason} after {count:,} deliveries, and should be {wanted}"


def _targets(rules: RuleSet) -> dict[Key, str]:
    """Return what the receiver does with each target of the enabled rules, by the first part of its path."""
    return {
        (rule.name, target.name): receiver_path(target).partition("/")[2].partition("/")[0]
        for rule in rules.enabled().values()
        for target in rule.targets.values()
    }
