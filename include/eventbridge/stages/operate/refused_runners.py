"""Runners that plan no batch: a rule moved to them that they are past, and that would miss what lies between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from eventbridge.errors import BusError, RuleMovedError
from eventbridge.rule import RuleSet
from eventbridge.stages.ingest.handover import arrivals, hand_over
from eventbridge.stages.runtime.runtime import Runtime


@dataclass(frozen=True)
class RefusedRunner:
    """A runner that takes nothing until somebody acts; `why` says what helps."""

    runner: str
    why: str


def refused_runners(work: Runtime, rules: RuleSet) -> Iterator[RefusedRunner]:
    """Yield the runners whose next listen refuses their rules; one whose bus cannot answer is left out."""
    assigned = work.ledger.assignments()
    for runner, bus in rules.runners().items():
        own = rules.for_runner(runner)
        if not any(
            was.runner != runner or was.left for (rule, _), was in assigned.items() if rule in own.rules
        ):  # else no rule came to it, and its bus need not be asked
            continue
        try:
            with closing(work.open_source(rules.buses[bus])) as source:
                arriving = arrivals(work, own, runner, rules.buses[bus], source)
            hand_over(runner, work.ledger.committed_offsets(runner), arriving)
        except RuleMovedError as error:
            yield RefusedRunner(runner, str(error))
        except BusError:
            continue
