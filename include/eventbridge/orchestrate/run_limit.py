"""How long a run of the DAGs that move batches may take."""

from __future__ import annotations

from datetime import timedelta

from eventbridge.config.settings import Settings


def run_limit(settings: Settings) -> timedelta:
    """Return `dagrun_timeout`: what budgets and deadline allow together, and 60 s for everything else.

    200 s with the default settings. Retry runs have as much: what they take up may begin at route.
    """
    budgets = settings.prepare_timeout + settings.batch_timeout + settings.push_timeout
    return timedelta(seconds=budgets + 60.0)
