"""Finds redrives by the beginning of their ids, and the last redrive of a dead letter with its outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventbridge.dead_letters.reader import DeadLetter
from eventbridge.dead_letters.redrive_plan import Survey
from eventbridge.errors import NotFoundError
from eventbridge.event.ids import delivery_id
from eventbridge.model import rowset
from eventbridge.model.batch import Batch
from eventbridge.model.redelivery import Redrive, Redriven
from eventbridge.pipeline.settle.settlement import settlements
from eventbridge.runtime.batch_files import Damaged, read_unless_damaged
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of

IN_PROGRESS = "in_progress"
PENDING = "pending"
UNMATCHED = "unmatched"
UNREADABLE = "unreadable"
PRUNED = "pruned"
_OPEN = ("retry_scheduled", "unknown")
_ID_COLUMNS = ["delivery_id", "bus", "source", "event_id", "rule", "target"]


def visible_redrives(runtime: Runtime) -> list[Redrive]:
    """Return the redrives, newest first; callers who are limited to owners get those of rules that they may see."""
    visibility = visibility_of(runtime)
    return [each for each in runtime.ledger.redrives.all() if visibility.rule(each.selection.get("rule"))]


def find_redrive(runtime: Runtime, name: str) -> Redrive:
    """Return the redrive whose id begins with `name`. Raises NotFoundError if there is none, or several."""
    found = [each for each in visible_redrives(runtime) if name and each.redrive_id.startswith(name.lower())]
    if len(found) != 1:
        how_many = f"{len(found)} redrives begin with" if found else "there is no redrive"
        raise NotFoundError(f"{how_many} {name!r}. `eventbridge redrives list` lists all redrives.")
    return found[0]


def redrive_document(request: Redrive, counts: Counter[str]) -> dict[str, object]:
    """Return a redrive as JSON, with the number of dead letters that it has taken, in total and by outcome."""
    return {
        "redrive_id": request.redrive_id,
        "state": request.state,
        "started_at": request.started_at,
        "ended_at": request.ended_at,
        "selection": request.selection,
        "rate": request.rate,
        "retransform": request.retransform,
        "again": request.again,
        "taken": counts.total(),
        "outcomes": dict(sorted(counts.items())),
    }


def survey_document(survey: Survey) -> dict[str, list[dict[str, object]]]:
    """Return a survey as JSON: which dead letters a redrive would take, and why it would not take others."""
    return {
        "taken": [{"of": of, "count": count} for of, count in sorted(survey.taken.items())],
        "left": [{"of": of, "count": count, "why": why} for (of, why), count in sorted(survey.left.items())],
    }


@dataclass(frozen=True)
class Mark:
    """The last redrive of a dead letter: its id, the batch that took the dead letter, when it was planned, the outcome.

    `outcome` is `delivered`, `dead_lettered` (a newer dead letter exists), `pending` (it will be retried), `unmatched`
    (with --retransform: the rule of that time does not match the event), `pruned` (the records of the batch are past
    their retention) or `in_progress`, which includes the time until all deferred matches of its batch are routed.
    """

    redrive_id: str
    batch_id: str
    at: datetime
    outcome: str


class Marks:
    """Finds the mark of each dead letter; caches outcomes, so that those of a batch are read only once.

    An unreadable dead letter file is skipped and added to `damaged`.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.damaged: Damaged = {}
        self._redriven = runtime.ledger.redrives.list_taken()
        self._batches: dict[str, Batch] = {}
        self._outcomes: dict[str, dict[bytes, str]] = {}

    def mark(self, dead_letter: DeadLetter) -> Mark | None:
        """Return the mark of the newest redrive of a dead letter, or None if it was never redriven."""
        for taken in reversed(self._redriven.get(dead_letter.file, [])):
            if dead_letter.row in rowset.decode(taken.rows):
                batch = self._batch(taken.batch_id)
                return Mark(
                    taken.redrive_id, taken.batch_id, batch.planned_at, self._outcome(batch, dead_letter.record)
                )
        return None

    def counts(self, redrive: Redrive) -> Counter[str]:
        """Return how many dead letters a redrive took, by outcome; `unreadable` counts those in damaged files."""
        found: Counter[str] = Counter()
        for taken in self._rows_of_redrive(redrive):
            batch = self._batch(taken.batch_id)
            table = read_unless_damaged(self._runtime.store, taken.file, taken.rows, _ID_COLUMNS, damaged=self.damaged)
            if table is None:
                found[UNREADABLE] += taken.count
                continue
            found.update(self._outcome(batch, record) for record in table.to_pylist())
        return found

    def _rows_of_redrive(self, redrive: Redrive) -> list[Redriven]:
        return [each for rows in self._redriven.values() for each in rows if each.redrive_id == redrive.redrive_id]

    def _outcome(self, batch: Batch, record: dict[str, Any]) -> str:
        wanted = record["delivery_id"]
        if batch.has_route_stage:
            bus, source, event_id, rule, target = (record[name] for name in _ID_COLUMNS[1:])
            wanted = delivery_id(bus, source, event_id, rule, target, batch.replay_id)
        if batch.state != "committed":
            return IN_PROGRESS
        if batch.kept != "all":
            return PRUNED
        found = self._outcomes_of(batch.batch_id).get(wanted)
        return found or (IN_PROGRESS if self._has_open_matches(batch.batch_id) else UNMATCHED)

    def _has_open_matches(self, batch_id: str) -> bool:
        """Return whether any deferred match of a batch, or of a batch that routed such matches, is not routed yet."""
        made = self._runtime.ledger.deferred_matches.list_for_batch(batch_id)
        return any(each.closed_by is None or self._has_open_matches(each.closed_by) for each in made)

    def _outcomes_of(self, batch_id: str) -> dict[bytes, str]:
        """Return the last known outcome of every delivery of a batch, from this batch and the batches that took the
        delivery up later."""
        found = self._outcomes.get(batch_id)
        if found is None:
            found = {}
            for _, table in settlements(self._runtime, batch_id, ["delivery_id", "status"]):
                rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
                found |= {name: PENDING if status in _OPEN else status for name, status in rows}
            routed = {each.closed_by for each in self._runtime.ledger.deferred_matches.list_for_batch(batch_id)}
            for other in sorted(each for each in routed if each is not None):
                found |= self._outcomes_of(other)
            later = {
                row.closed_by
                for row in self._runtime.ledger.pending.list_for_batch(batch_id)
                if row.closed_by is not None
            }
            for other in sorted(later):
                known = self._outcomes_of(other)
                found |= {key: known[key] for key, value in found.items() if value == PENDING and key in known}
            self._outcomes[batch_id] = found
        return found

    def _batch(self, batch_id: str) -> Batch:
        if batch_id not in self._batches:
            self._batches[batch_id] = self._runtime.ledger.batches.get(batch_id)
        return self._batches[batch_id]
