"""The states of the targets at the end of the demo: printed, and compared with the behaviour of their servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from demo.receipts import receiver_path
from eventbridge.model.rule_state import TargetState, TargetStatus
from eventbridge.policy.breaker import LEAST_ATTEMPTS
from eventbridge.rules import RuleSet

#: The final state of a target, by the first part of its path at the receiver.
_EXPECTED: Mapping[str, TargetState] = {"flaky": "ok", "gone": "disabled", "hang": "degraded"}
#: Fewer deliveries, spread over batches, may not degrade a target that hangs.
_CLEAR = 2 * LEAST_ATTEMPTS

Key = tuple[str, str]


def target_lines(rules: RuleSet, statuses: Mapping[Key, TargetStatus]) -> Iterator[str]:
    """Yield a line for each target that is not ok, and one for the others."""
    ok_count = 0
    for rule, target in _targets(rules):
        status = statuses.get((rule, target))
        if status is None or status.state == "ok":
            ok_count += 1
        else:
            yield f"{rule}/{target}: {status.state} since {status.since:%H:%M:%S} UTC, {status.reason}"
    yield f"{ok_count} others: ok"


def unexpected_states(
    rules: RuleSet, statuses: Mapping[Key, TargetStatus], matched: Mapping[str, int]
) -> Iterator[str]:
    """Yield the targets in an unexpected state; `matched` has the number of deliveries by `<rule>/<target>`.

    The target that hangs must be degraded, the target that accepts every third attempt ok, and the target that is gone
    disabled.
    """
    for (rule, target), kind in _targets(rules).items():
        wanted, count = _EXPECTED.get(kind), matched.get(f"{rule}/{target}", 0)
        if wanted is None or count < (_CLEAR if wanted == "degraded" else 1):
            continue
        status = statuses.get((rule, target))
        state = status.state if status is not None else "ok"
        if state != wanted:
            reason = f" ({status.reason})" if status is not None and status.reason else ""
            yield f"{rule}/{target} is {state}{reason} after {count:,} deliveries; expected {wanted}"


def _targets(rules: RuleSet) -> dict[Key, str]:
    """Return the receiver's behaviour for each target of the enabled rules: the first part of its path."""
    return {
        (rule.name, target.name): receiver_path(target).partition("/")[2].partition("/")[0]
        for rule in rules.enabled().values()
        for target in rule.targets.values()
    }
