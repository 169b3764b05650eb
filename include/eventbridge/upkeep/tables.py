"""Lets targets keep their tables in good order, outside of pushes, because compacting a table may take minutes."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import timedelta
from typing import cast

from eventbridge.errors import EventBridgeError
from eventbridge.rules.model import Target
from eventbridge.targets.protocol import Maintainable
from eventbridge.upkeep.run import RetentionRun

log = logging.getLogger(__name__)


def maintain_tables(run: RetentionRun) -> None:
    """Call the upkeep of each target whose rule has `maintain`; one that fails is logged and tried by the next run."""
    if run.dry_run:
        return
    for rule in run.runtime.rule_set().rules.values():
        for target in rule.destinations.values():
            every: float | None = getattr(target, "maintain_seconds", None)
            if every is None:
                continue
            if run.is_over():
                return
            _maintain(run, rule.name, target, timedelta(seconds=every))


def _maintain(run: RetentionRun, rule: str, target: Target, every: timedelta) -> None:
    try:
        with closing(run.runtime.open_target(rule, target)) as opened:
            if cast(Maintainable, opened).maintain(every):
                run.done.tables += 1
                run.progressed()
    except EventBridgeError as error:
        log.warning("the table of target %s/%s is not maintained: %s", rule, target.name, error)
