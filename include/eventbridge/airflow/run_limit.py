"""How long a run of a DAG that processes batches may take."""

from __future__ import annotations

from datetime import timedelta

from eventbridge.config.settings import Settings


def run_limit(settings: Settings) -> timedelta:
    """Return `dagrun_timeout`: all time-outs of a batch, plus 60 s for everything else.

    200 s with the default settings, also for retry runs, whose batches may start at route.
    """
    budgets = settings.prepare_timeout + settings.batch_timeout + settings.push_timeout
    return timedelta(seconds=budgets + 60.0)
