"""Stalled runners: a rule moved to them, and they take nothing until its old runner has caught up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from eventbridge.errors import BusError, RuleMovedError
from eventbridge.pipeline.ingest.rule_transfer import arrivals, transfer_of
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime

_REMEDY = "If that takes more than some minutes, check that the old runner's DAG, or its `eventbridge deliver`, runs"


@dataclass(frozen=True)
class StalledRunner:
    """A stalled runner; `why` says what it waits for or, if that never comes, the remedy."""

    runner: str
    why: str


def stalled_runners(runtime: Runtime, rules: RuleSet) -> Iterator[StalledRunner]:
    """Yield the runners that refuse a rule, or wait for its old runner; buses that do not respond are skipped."""
    assigned = runtime.ledger.assignments()
    for runner, bus in rules.runners().items():
        own = rules.for_runner(runner)
        if not any(
            was.runner != runner or was.left for (rule, _), was in assigned.items() if rule in own.rules
        ):  # else no rule moved to it, and its bus need not be read
            continue
        try:
            with closing(runtime.open_source(rules.buses[bus])) as source:
                arriving = arrivals(runtime, own, runner, rules.buses[bus], source)
            for behind in transfer_of(runner, runtime.ledger.committed_offsets(runner), arriving).behind:
                yield StalledRunner(runner, f"{behind}. {_REMEDY}")
        except RuleMovedError as error:
            yield StalledRunner(runner, str(error))
        except BusError:
            continue
