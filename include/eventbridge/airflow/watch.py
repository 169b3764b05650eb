"""Polls the ledger and the buses for the watcher, to find runners with waiting events, due retries and stuck work."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from eventbridge.airflow.connections import airflow_connection
from eventbridge.airflow.names import RETRIES, WATCHER_ALIVE, runner_subject
from eventbridge.airflow.run_start import HANDLED, RunStart, SubjectState, needs_start, next_start
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.stuck import ReopenedPools, orphaned_redrive, orphaned_replay, report_late_batches
from eventbridge.errors import BusError, UserError
from eventbridge.model.partition import Partition
from eventbridge.rules import RuleSet
from eventbridge.runtime.instrumented import report_ended
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource
from eventbridge.streaming.lease import is_gone
from eventbridge.telemetry.protocol import NO_TELEMETRY, CheckEnded

#: The time between two checks of the rules for changes. A shorter interval would not start a new runner sooner, because
#: the runner has no DAG until Airflow parses the DAG file.
_RULES_INTERVAL = timedelta(seconds=2)


def open_watch() -> Watch:
    """Return a watch over the ledger that this process's settings name, and over the buses in the rules."""
    settings = airflow_settings()
    return Watch(open_runtime(settings, airflow_connection))


#: The time for which a bus is not polled after it could not be opened or did not respond.
_POLL_PAUSE = timedelta(seconds=30)

#: The interval at which the watcher records in the ledger that it is polling. The watcher counts as dead if it has
#: recorded nothing for `WATCHER_ALIVE`, which is three intervals.
_RECORD_INTERVAL = timedelta(seconds=20)

#: The time between two checks for late batches.
_LATE_INTERVAL = timedelta(seconds=10)

#: The time between two checks for orphaned replays and redrives.
_ORPHANS_INTERVAL = timedelta(seconds=20)

log = logging.getLogger(__name__)


@dataclass
class Watch:
    """Polls the ledger and the buses, and keeps state between polls. Only one thread may use it."""

    runtime: Runtime
    run_starts: dict[str, RunStart] = field(default_factory=dict)
    _rules: RuleSet | None = None
    _rules_seen: tuple[datetime, Hashable] | None = None
    _sources: dict[str, LogSource] = field(default_factory=dict)
    _not_polled_until: dict[str, datetime] = field(default_factory=dict)
    _ends: dict[str, tuple[datetime, Mapping[Partition, int]]] = field(default_factory=dict)
    _recorded_at: datetime | None = None
    _with_new_rules: set[str] = field(default_factory=set)
    _orphans_seen: tuple[datetime, bool] | None = None
    _late_checked_at: datetime | None = None
    _late: set[str] = field(default_factory=set)
    _pools: ReopenedPools = field(init=False)

    def __post_init__(self) -> None:
        self._pools = ReopenedPools(self.runtime)

    def check(self) -> list[str]:
        """Return the subjects (those of runners, and RETRIES) whose runs must start now, and remember the starts."""
        now = self.runtime.clock()
        starting: list[str] = []
        error: str | None = None
        try:
            starting = self._check(now)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            if self.runtime.telemetry is not NO_TELEMETRY:
                report_ended(
                    self.runtime.telemetry.check_ended, CheckEnded(now, self.runtime.clock(), tuple(starting), error)
                )
        return starting

    def subjects_to_start(self) -> list[str]:
        """Return the subjects for which the fallback DAG `eventbridge_start_waiting_runs` must start runs.

        The watcher's last starts do not matter. If the watcher is not polling, all subjects are returned, because
        nothing else would start the runs that apply changed rules. Otherwise the result has the subjects with waiting
        or unfinished work, and those whose bus does not respond, because their runs log the reason.
        """
        now = self.runtime.clock()
        rules = self._current_rules(now)
        subjects = [*(runner_subject(runner) for runner in rules.runners()), RETRIES]
        last = self.runtime.ledger.watcher.last_check()
        if last is None or self.runtime.ledger.now() - last >= WATCHER_ALIVE:
            return subjects
        seen = self._subject_states(rules, now)
        return [each for each in subjects if each not in seen or seen[each].waiting or seen[each].unfinished]

    def reset_repeats(self, subject: str) -> None:
        """Reset a subject's count of repeated starts when its trigger has just begun.

        Airflow starts the trigger of a DAG again when the DAG is unpaused. The starts that were lost while it was
        paused must not delay the next one.
        """
        if subject in self.run_starts:
            self.run_starts[subject] = replace(self.run_starts[subject], repeats=0)

    def _subject_states(self, rules: RuleSet, now: datetime) -> dict[str, SubjectState]:
        """Return the state of each subject except the runners whose bus does not respond."""
        seen = {}
        for runner, bus in rules.runners().items():
            if (found := self._reachable_state(rules, runner, bus, now)) is not None:
                seen[runner_subject(runner)] = found
        seen[RETRIES] = self._retry_state(rules)
        return seen

    def _check(self, now: datetime) -> list[str]:
        rules = self._current_rules(now)
        self._ends = {bus: cached for bus, cached in self._ends.items() if cached[0] > now}
        seen = self._subject_states(rules, now)
        starting = [subject for subject, found in seen.items() if needs_start(found, self.run_starts.get(subject), now)]
        for subject in starting:
            self.run_starts[subject] = next_start(seen[subject], self.run_starts.get(subject), now)
        for subject, found in seen.items():
            if not found.waiting and (subject in self.run_starts or found.unfinished):
                # Unfinished work gets a run no sooner than `UNFINISHED` (60 s) after the last start or, without one,
                # after now.
                run_start = self.run_starts.get(subject, RunStart(now, HANDLED))
                run_start = run_start if found.unfinished else RunStart(run_start.started_at, HANDLED)
                self.run_starts[subject] = replace(run_start, mark=HANDLED)
        self._with_new_rules.difference_update(starting)
        self._record_poll(now)
        self._report_late(now)
        return starting

    def _record_poll(self, now: datetime) -> None:
        """Record in the ledger, at intervals, that the watcher is polling.

        While a bus does not respond, nothing is recorded, so that the fallback takes over: it runs each minute and
        starts the runs of all subjects, including those of that bus.
        """
        has_paused = any(until > now for until in self._not_polled_until.values())
        if not has_paused and (self._recorded_at is None or now - self._recorded_at >= _RECORD_INTERVAL):
            self.runtime.ledger.watcher.record_check()
            self._recorded_at = now

    def _report_late(self, now: datetime) -> None:
        """Report the batches that have become late since the last check."""
        if self._late_checked_at is None or now - self._late_checked_at >= _LATE_INTERVAL:
            self._late = report_late_batches(self.runtime, self.runtime.ledger.now(), self._late)
            self._late_checked_at = now

    def close(self) -> None:
        """Close the buses, the ledger and the connection to Airflow."""
        self.close_sources()
        self._pools.close()
        self.runtime.close()

    def _reachable_state(self, rules: RuleSet, runner: str, bus: str, now: datetime) -> SubjectState | None:
        """Return the state of a runner, or None if its bus does not respond or cannot be opened.

        Such a bus is not polled for a while, so that its timeouts do not delay the runs for other buses. Meanwhile the
        fallback schedule starts its runs.
        """
        if self._not_polled_until.get(bus, now) > now:
            return None
        try:
            return self._runner_state(rules, runner, bus, now)
        except (BusError, UserError) as error:
            seconds = _POLL_PAUSE.total_seconds()
            log.warning("the watcher will not poll bus %s for the next %.0f s: %s", bus, seconds, error)
            self._not_polled_until[bus] = self.runtime.clock() + _POLL_PAUSE
            self._drop(bus)
            return None

    def _drop(self, bus: str) -> None:
        """Close a bus that failed.

        A later poll opens it again with a new client, because the old one might repeat the same error forever.
        """
        self._ends.pop(bus, None)
        source = self._sources.pop(bus, None)
        if source is not None:
            with suppress(BusError):
                source.close()

    def _runner_state(self, rules: RuleSet, runner: str, bus: str, now: datetime) -> SubjectState:
        source = self._sources.get(bus)
        if source is None:
            source = self._sources[bus] = self.runtime.open_source(rules.buses[bus])
        ledger = self.runtime.ledger
        lease = ledger.streaming.lease(runner)
        if lease is not None and not is_gone(
            lease.holder
        ):  # the streaming task takes new events itself; a run is needed only if the task wants a standby and has none
            wanted = lease.wants_next and lease.standby(ledger.now()) is None
            return SubjectState(waiting=wanted, busy=not wanted, mark=lease.holder)
        pulled = dict(ledger.offsets.committed(runner))
        # A runner without offsets gets a run even if no events are waiting, because its first run registers its
        # consumer group, and `start_at: latest` means the end of the bus at that moment.
        registered = bool(pulled)
        batch = ledger.batches.unfinished(runner)
        if batch is not None:
            pulled |= {part.partition: part.end for part in ledger.batches.ranges(batch.batch_id)}
        waiting = not registered or any(
            end > pulled[partition] if partition in pulled else end > source.earliest(partition)
            for partition, end in self._ends_of(bus, source, now).items()
        )
        # A run that starts while the previous batch is being settled saves a second: it is ready once that batch is
        # committed. If the batch is open and no live process holds the lease, the streaming task has died.
        busy = batch is not None and batch.state not in ("open", "settling")
        mark = tuple(sorted(pulled.items()))
        unfinished = batch is not None or runner_subject(runner) in self._with_new_rules
        unfinished = unfinished or bool(ledger.settlement.bus_commits_outstanding(runner))
        progress = None if batch is None else (batch.batch_id, batch.state)
        return SubjectState(waiting, busy, mark, unfinished=unfinished, progress=self._progress(runner, mark, progress))

    def _progress(self, runner: str, mark: Hashable, batch_progress: Hashable) -> Hashable:
        """Return a value that changes with each step of a run, or None if starts must not be delayed.

        Starts must not be delayed if changed rules are not applied yet or ingestion is stopped, because then even a run
        that takes no events has an effect.
        """
        if runner_subject(runner) in self._with_new_rules or self.runtime.ledger.ingestion.current_stop() is not None:
            return None
        return mark, batch_progress

    def _ends_of(self, bus: str, source: LogSource, now: datetime) -> Mapping[Partition, int]:
        """Return the ends of a bus's partitions, which are read once per poll for all runners of the bus.

        The ends of a bus with a broker stay valid for `ends_valid_seconds`, so that the broker is not queried at every
        poll.
        """
        if bus not in self._ends:
            valid_for = timedelta(seconds=getattr(source, "ends_valid_seconds", 0.0))
            self._ends[bus] = now + valid_for, source.ends()
        return self._ends[bus][1]

    def _retry_state(self, rules: RuleSet) -> SubjectState:
        ledger = self.runtime.ledger
        now = ledger.now()
        if not (ledger.due.has_any(now) or ledger.deferred_matches.has_due(now) or ledger.queues.has_work(now)):
            pending = ledger.pending.has_waiting()
            # If a pool was reopened, a run releases the deliveries that were on hold because it was closed.
            if not (pending and self._pools.has_any(rules, now)):
                unfinished = pending or ledger.deferred_matches.has_waiting() or self._has_orphans()
                return SubjectState(waiting=False, busy=False, mark=None, beside=True, unfinished=unfinished)
        busy = ledger.pending.has_taken() or ledger.deferred_matches.has_taken()
        newest = ledger.batches.newest_retry()
        return SubjectState(waiting=True, busy=busy, mark=newest, beside=True, progress=(newest, busy))

    def _has_orphans(self) -> bool:
        """Return whether a replay or redrive is orphaned. The ledger is queried at most once per _ORPHANS_INTERVAL."""
        now = self.runtime.clock()
        if self._orphans_seen is None or now - self._orphans_seen[0] >= _ORPHANS_INTERVAL:
            self._orphans_seen = now, bool(orphaned_replay(self.runtime) or orphaned_redrive(self.runtime))
        return self._orphans_seen[1]

    def _current_rules(self, now: datetime) -> RuleSet:
        """Return the rules, which are read again only if they have changed."""
        if self._rules is not None and self._rules_seen is not None and now - self._rules_seen[0] < _RULES_INTERVAL:
            return self._rules
        fingerprint = rules_fingerprint(self.runtime)
        if self._rules is None or self._rules_seen is None or self._rules_seen[1] != fingerprint:
            has_changed = self._rules is not None
            self._rules = self.runtime.rule_set()
            if has_changed:  # each runner gets a run that applies the new rules, even if no events are waiting
                self._with_new_rules = {runner_subject(runner) for runner in self._rules.runners()}
            self.close_sources()
        self._rules_seen = (now, fingerprint)
        return self._rules

    def close_sources(self) -> None:
        """Close the buses; the next poll reopens them."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        self._ends.clear()


def rules_fingerprint(runtime: Runtime) -> Hashable:
    """Return a value that changes with the rule files or, if rules are published, with the published rules."""
    if runtime.settings.rules_from == "published":
        in_force = runtime.ledger.rules.get_in_force()
        return None if in_force is None else in_force.rule_set
    return _folder_fingerprint(Path(runtime.settings.rules_folder))


def _folder_fingerprint(folder: Path) -> Hashable:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml"))
    return tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
