"""One look at ledger and buses for the doorbell: which runners have events waiting, and are retries due."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from eventbridge.orchestrate.bell import Bell, Seen, rings
from eventbridge.orchestrate.connections import airflow_connection
from eventbridge.orchestrate.names import RETRIES, runner_subject
from eventbridge.rule import RuleSet
from eventbridge.settings import Settings
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.workplace import Workplace

#: How long a look at the rule files holds; a new bus or runner has to wait for its DAG file to be read anyway.
_RULES_HOLD = timedelta(seconds=2)


def open_watch() -> Watch:
    """Open ledger and buses by this process's settings."""
    settings = Settings.from_mapping(os.environ)
    return Watch(Workplace.open(settings, airflow_connection))


@dataclass
class Watch:
    """What the doorbell knows between two looks; belongs to one thread."""

    work: Workplace
    bells: dict[str, Bell] = field(default_factory=dict)
    _rules: RuleSet | None = None
    _rules_seen: tuple[datetime, Hashable] | None = None
    _sources: dict[str, LogSource] = field(default_factory=dict)

    def look(self) -> list[str]:
        """Return the subjects to ring for now, and remember that they were."""
        now = self.work.clock()
        rules = self._today(now)
        seen = {runner_subject(runner): self._runner(rules, runner, bus) for runner, bus in rules.runners().items()}
        seen[RETRIES] = self._retries()
        ringing = [subject for subject, found in seen.items() if rings(found, self.bells.get(subject), now)]
        for subject in ringing:
            self.bells[subject] = Bell(now, seen[subject].mark)
        return ringing

    def close(self) -> None:
        """Let go of the buses and the ledger."""
        self._close_sources()
        self.work.close()

    def _runner(self, rules: RuleSet, runner: str, bus: str) -> Seen:
        source = self._sources.get(bus)
        if source is None:
            source = self._sources[bus] = self.work.open_source(rules.buses[bus])
        ledger = self.work.ledger
        pulled = dict(ledger.committed_offsets(runner))
        # A group that is not registered yet is rung for even if nothing waits: `latest` counts from registration.
        registered = bool(pulled)
        batch = ledger.unfinished_batch(runner)
        if batch is not None:
            pulled |= {part.queue: part.end for part in ledger.ranges(batch.batch_id)}
        waiting = not registered or any(
            end > pulled[queue] if queue in pulled else end > source.earliest(queue)
            for queue, end in source.ends().items()
        )
        # Rung for while the batch before is settled, the next run is there when its commit is done: a second sooner.
        busy = batch is not None and batch.state != "settling"
        return Seen(waiting=waiting, busy=busy, mark=tuple(sorted(pulled.items())))

    def _retries(self) -> Seen:
        now = self.work.ledger.now()
        waiting = self.work.ledger.waiting_references()
        taken = {each.rule for each in waiting if each.taken_by is not None}  # of these nothing more is taken up
        due = (
            *self.work.ledger.due_targets(now),
            *(each for each in waiting if each.state == "due" and each.due_at <= now and each.rule not in taken),
        )
        busy = bool(due) and bool(taken or self.work.ledger.taken_targets())
        return Seen(waiting=bool(due), busy=busy, mark=due, beside=True)

    def _today(self, now: datetime) -> RuleSet:
        """Return the rules, read again only if a file changed."""
        if self._rules is not None and self._rules_seen is not None and now - self._rules_seen[0] < _RULES_HOLD:
            return self._rules
        mark = _folder_mark(Path(self.work.settings.rules_folder))
        if self._rules is None or self._rules_seen is None or self._rules_seen[1] != mark:
            self._rules = self.work.rule_set()
            self._close_sources()
        self._rules_seen = (now, mark)
        return self._rules

    def _close_sources(self) -> None:
        for source in self._sources.values():
            source.close()
        self._sources.clear()


def _folder_mark(folder: Path) -> Hashable:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml"))
    return tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
