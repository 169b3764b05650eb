"""What is known about targets, exchanged between runs and the ledger: a push of a chunk and a streaming task use it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from eventbridge.delivery.admission import must_halt, must_wind_down
from eventbridge.delivery.rows import OutcomeRow
from eventbridge.delivery.run import TargetRun
from eventbridge.model.batch import Batch
from eventbridge.model.rule_state import OperatorOverrides, TargetStatus
from eventbridge.policy.breaker import pause_of
from eventbridge.runtime.runtime import Runtime

#: How often attempts are reported to the ledger, and findings of other processes are read.
_EXCHANGE_SECONDS = 1.0


class TargetFindings:
    """Reports to the ledger what runs of a batch find about their targets, and applies to them what it says.

    One thread at a time uses it.
    """

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._runtime, self._batch = runtime, batch
        self._exchanged_at = time.monotonic()
        self._gone: set[tuple[str, str]] = set()

    @property
    def is_due(self) -> bool:
        """Whether to call `exchange` now."""
        return time.monotonic() - self._exchanged_at >= _EXCHANGE_SECONDS

    def exchange(self, unreported: Iterable[TargetRun], runs: Iterable[TargetRun]) -> None:
        """Report the attempts of `unreported`; apply to `runs` what other processes found and operators set."""
        ledger = self._runtime.ledger
        tallies = [tally for run in unreported if (tally := run.breaker.take()) is not None]
        if tallies:
            ledger.targets.record_attempts(tallies)
        at_work = [run for run in runs if not run.has_ended]
        if at_work:
            statuses, overrides = ledger.targets.statuses(), ledger.overrides.in_effect()
            for run in at_work:
                self._apply(run, statuses.get((run.report.rule, run.report.target)), overrides)
        self._exchanged_at = time.monotonic()

    def _apply(self, run: TargetRun, status: TargetStatus | None, overrides: OperatorOverrides) -> None:
        key = run.report.rule, run.report.target
        run.pace.set_rate(overrides.rate(*key, run.settings.rate_of_file))
        if overrides.hold_reason(*key):
            run.halt()
        if status is None:
            return
        now = self._runtime.clock()
        if must_halt(status, follows_others=run.follows_others, now=now):
            run.halt()
        elif must_wind_down(status, self._batch, now):
            run.wind_down()
        if (pause := pause_of(status, now)) is not None:
            run.pause.ask(pause)

    def note_gone(self, rows: Iterable[OutcomeRow]) -> None:
        """Note the targets that responded with 410 in `rows`."""
        self._gone.update((row.rule, row.target) for row in rows if row.reason == "target_gone")

    def disable_gone(self) -> None:
        """Disable the targets that were noted; after an error, the next call disables the rest."""
        while self._gone:
            key = next(iter(self._gone))
            self._runtime.ledger.targets.set_status(*key, "disabled", "the target responded with 410")
            self._gone.discard(key)
