"""One look at ledger and buses for the watcher: which runners have events waiting, and are retries due."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from eventbridge.errors import BusError, UserError
from eventbridge.model.partition import Partition
from eventbridge.orchestrate.connections import airflow_connection
from eventbridge.orchestrate.late import report_late_batches
from eventbridge.orchestrate.names import RETRIES, runner_subject
from eventbridge.orchestrate.opened_pools import OpenedPools
from eventbridge.orchestrate.orphaned import orphaned_redrive, orphaned_replay
from eventbridge.orchestrate.run_start import RESPONDED, RunStart, Seen, needs_start, started
from eventbridge.orchestrate.schedule import ALIVE
from eventbridge.orchestrate.settings import airflow_settings
from eventbridge.rule import RuleSet
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.operate.streaming_lease import is_gone
from eventbridge.stages.runtime.instrumented import report_ended
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.telemetry.protocol import NO_TELEMETRY, LookEnded

#: How long a look at the rule files holds; a new bus or runner has to wait for its DAG file to be read anyway.
_RULES_HOLD = timedelta(seconds=2)


def open_watch() -> Watch:
    """Open ledger and buses by this process's settings."""
    settings = airflow_settings()
    return Watch(Runtime.open(settings, airflow_connection))


#: For how long a bus that did not respond is not asked again.
_SILENCE = timedelta(seconds=30)

#: How often the ledger is told that the watcher lives: several times before it is taken for dead (`schedule.ALIVE`).
_NOTE = timedelta(seconds=20)

#: How often the ledger is asked for batches that are late.
_LATE_LOOK = timedelta(seconds=10)

#: How long a look for a replay or redrive that is left to nobody holds.
_LEFT_HOLDS = timedelta(seconds=20)

log = logging.getLogger(__name__)


@dataclass
class Watch:
    """What the watcher knows between two looks; belongs to one thread."""

    runtime: Runtime
    run_starts: dict[str, RunStart] = field(default_factory=dict)
    _rules: RuleSet | None = None
    _rules_seen: tuple[datetime, Hashable] | None = None
    _sources: dict[str, LogSource] = field(default_factory=dict)
    _silent: dict[str, datetime] = field(default_factory=dict)
    _ends: dict[str, tuple[datetime, Mapping[Partition, int]]] = field(default_factory=dict)
    _noted_at: datetime | None = None
    _with_new_rules: set[str] = field(default_factory=set)
    _left_seen: tuple[datetime, bool] | None = None
    _late_looked_at: datetime | None = None
    _late: set[str] = field(default_factory=set)
    _pools: OpenedPools = field(init=False)

    def __post_init__(self) -> None:
        self._pools = OpenedPools(self.runtime)

    def look(self) -> list[str]:
        """Return the subjects to start runs for now, and remember that they were."""
        now = self.runtime.clock()
        starting: list[str] = []
        error: str | None = None
        try:
            starting = self._look(now)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            if self.runtime.telemetry is not NO_TELEMETRY:
                report_ended(
                    self.runtime.telemetry.look_ended, LookEnded(now, self.runtime.clock(), tuple(starting), error)
                )
        return starting

    def no_response(self) -> list[str]:
        """Return the subjects that need a run, whenever the watcher started a run last: the question of the fallback.

        While the watcher is silent these are all, as a run also takes up changed rules; else each with something that
        waits or is unfinished, and each whose bus does not respond: its run shows why.
        """
        now = self.runtime.clock()
        rules = self._today(now)
        subjects = [*(runner_subject(runner) for runner in rules.runners()), RETRIES]
        last = self.runtime.ledger.last_look()
        if last is None or self.runtime.ledger.now() - last >= ALIVE:
            return subjects
        seen = self._seen(rules, now)
        return [each for each in subjects if each not in seen or seen[each].waiting or seen[each].unfinished]

    def listen_for(self, subject: str) -> None:
        """Repeat the start of a subject whose DAG listens from now on as soon as if it had not been repeated before.

        Starts are lost while a DAG is paused; Airflow starts its trigger again when it is not.
        """
        if subject in self.run_starts:
            self.run_starts[subject] = replace(self.run_starts[subject], repeats=0)

    def _seen(self, rules: RuleSet, now: datetime) -> dict[str, Seen]:
        """Return how each subject stands, without the runners of buses that do not respond."""
        seen = {}
        for runner, bus in rules.runners().items():
            if (found := self._asked(rules, runner, bus, now)) is not None:
                seen[runner_subject(runner)] = found
        seen[RETRIES] = self._retries(rules)
        return seen

    def _look(self, now: datetime) -> list[str]:
        rules = self._today(now)
        self._ends = {bus: held for bus, held in self._ends.items() if held[0] > now}
        seen = self._seen(rules, now)
        starting = [subject for subject, found in seen.items() if needs_start(found, self.run_starts.get(subject), now)]
        for subject in starting:
            self.run_starts[subject] = started(seen[subject], self.run_starts.get(subject), now)
        for subject, found in seen.items():
            if not found.waiting and (subject in self.run_starts or found.unfinished):  # its minute begins now
                run_start = self.run_starts.get(subject, RunStart(now, RESPONDED))
                run_start = run_start if found.unfinished else RunStart(run_start.started_at, RESPONDED)
                self.run_starts[subject] = replace(run_start, mark=RESPONDED)
        self._with_new_rules.difference_update(starting)
        self._note(now)
        self._report_late(now)
        return starting

    def _note(self, now: datetime) -> None:
        """Tell the ledger now and then that the watcher lives, unless it has left a bus alone: then the fallback
        schedule is to start runs.
        """
        silent = any(until > now for until in self._silent.values())
        if not silent and (self._noted_at is None or now - self._noted_at >= _NOTE):
            self.runtime.ledger.note_look()
            self._noted_at = now

    def _report_late(self, now: datetime) -> None:
        """Report the batches that became late since the last look for them."""
        if self._late_looked_at is None or now - self._late_looked_at >= _LATE_LOOK:
            self._late = report_late_batches(self.runtime, self.runtime.ledger.now(), self._late)
            self._late_looked_at = now

    def close(self) -> None:
        """Close the buses, the ledger and the connection to Airflow."""
        self.close_sources()
        self._pools.close()
        self.runtime.close()

    def _asked(self, rules: RuleSet, runner: str, bus: str, now: datetime) -> Seen | None:
        """Return how a runner stands; None where its bus does not respond or cannot be opened: it is left alone then.

        The schedule is its fallback. The runs of other buses do not wait for its time-outs.
        """
        if self._silent.get(bus, now) > now:
            return None
        try:
            return self._runner(rules, runner, bus, now)
        except (BusError, UserError) as error:
            log.warning("the watcher leaves the bus %s alone for %s: %s", bus, _SILENCE, error)
            self._silent[bus] = self.runtime.clock() + _SILENCE
            self._drop(bus)
            return None

    def _drop(self, bus: str) -> None:
        """Close a bus that failed, to be opened again: its client may keep to the error that it met."""
        self._ends.pop(bus, None)
        source = self._sources.pop(bus, None)
        if source is not None:
            with suppress(BusError):
                source.close()

    def _runner(self, rules: RuleSet, runner: str, bus: str, now: datetime) -> Seen:
        source = self._sources.get(bus)
        if source is None:
            source = self._sources[bus] = self.runtime.open_source(rules.buses[bus])
        ledger = self.runtime.ledger
        lease = ledger.streaming_lease(runner)
        if lease is not None and not is_gone(lease.holder):  # it takes what comes by itself, and asks for a standby
            wanted = lease.wants_next and lease.standby(ledger.now()) is None
            return Seen(waiting=wanted, busy=not wanted, mark=lease.holder)
        pulled = dict(ledger.committed_offsets(runner))
        # A group that is not registered yet gets a run even if nothing waits: `latest` counts from registration.
        registered = bool(pulled)
        batch = ledger.unfinished_batch(runner)
        if batch is not None:
            pulled |= {part.partition: part.end for part in ledger.ranges(batch.batch_id)}
        waiting = not registered or any(
            end > pulled[partition] if partition in pulled else end > source.earliest(partition)
            for partition, end in self._ends_of(bus, source, now).items()
        )
        # Started while the batch before is settled, the next run is there when its commit is done: a second sooner.
        # Open, and nobody has the lease, or who has it is gone: that died.
        busy = batch is not None and batch.state not in ("open", "settling")
        mark = tuple(sorted(pulled.items()))
        unfinished = batch is not None or runner_subject(runner) in self._with_new_rules
        unfinished = unfinished or bool(ledger.bus_commits_outstanding(runner))
        progress = None if batch is None else (batch.batch_id, batch.state)
        return Seen(waiting, busy, mark, unfinished=unfinished, progress=self._progress(runner, mark, progress))

    def _progress(self, runner: str, mark: Hashable, of_batch: Hashable) -> Hashable:
        """Return what a run changes; None where a run without work is right: it looks for room, or at new rules."""
        if runner_subject(runner) in self._with_new_rules or self.runtime.ledger.ingestion_stop() is not None:
            return None
        return mark, of_batch

    def _ends_of(self, bus: str, source: LogSource, now: datetime) -> Mapping[Partition, int]:
        """Return the ends of a bus's partitions, asked for once a look, however many runners consume it.

        A bus on other machines says how long they hold, so that its brokers are asked no more often than that.
        """
        if bus not in self._ends:
            hold = timedelta(seconds=getattr(source, "ends_hold_seconds", 0.0))
            self._ends[bus] = now + hold, source.ends()
        return self._ends[bus][1]

    def _retries(self, rules: RuleSet) -> Seen:
        ledger = self.runtime.ledger
        now = ledger.now()
        if not (ledger.anything_due(now) or ledger.deferred_match_due(now)):
            pending = ledger.anything_pending()
            if not (pending and self._pools.any(rules, now)):  # a run releases what is on hold for a pool
                unfinished = pending or ledger.any_deferred_match() or self._left()
                return Seen(waiting=False, busy=False, mark=None, beside=True, unfinished=unfinished)
        busy = ledger.anything_taken() or ledger.deferred_match_taken()
        newest = ledger.newest_retry()
        return Seen(waiting=True, busy=busy, mark=newest, beside=True, progress=(newest, busy))

    def _left(self) -> bool:
        """Return whether a replay or redrive is left to nobody, as it was found within the last _LEFT_HOLDS."""
        now = self.runtime.clock()
        if self._left_seen is None or now - self._left_seen[0] >= _LEFT_HOLDS:
            self._left_seen = now, bool(orphaned_replay(self.runtime) or orphaned_redrive(self.runtime))
        return self._left_seen[1]

    def _today(self, now: datetime) -> RuleSet:
        """Return the rules, read again only if a file changed."""
        if self._rules is not None and self._rules_seen is not None and now - self._rules_seen[0] < _RULES_HOLD:
            return self._rules
        mark = self._mark()
        if self._rules is None or self._rules_seen is None or self._rules_seen[1] != mark:
            known = self._rules is not None
            self._rules = self.runtime.rule_set()
            if known:  # a run takes them up, though no event comes
                self._with_new_rules = {runner_subject(runner) for runner in self._rules.runners()}
            self.close_sources()
        self._rules_seen = (now, mark)
        return self._rules

    def _mark(self) -> Hashable:
        if self.runtime.settings.rules_from == "published":
            known = self.runtime.ledger.rules_in_force()
            return None if known is None else known.rule_set
        return _folder_mark(Path(self.runtime.settings.rules_folder))

    def close_sources(self) -> None:
        """Close the buses, to be opened again when they are needed."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        self._ends.clear()


def _folder_mark(folder: Path) -> Hashable:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml"))
    return tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
