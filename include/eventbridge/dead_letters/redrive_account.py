"""Finds redrives by the beginning of an id and returns them as JSON, for command line, API and page."""

from __future__ import annotations

from collections import Counter

from eventbridge.dead_letters.redrive_plan import Survey
from eventbridge.errors import NotFoundError
from eventbridge.model.redelivery import Redrive
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of


def seen_redrives(runtime: Runtime) -> list[Redrive]:
    """Return the redrives, newest first; callers who are limited to owners get those of one rule they may see."""
    visibility = visibility_of(runtime)
    return [each for each in runtime.ledger.redrives() if visibility.rule(each.selection.get("rule"))]


def find_redrive(runtime: Runtime, name: str) -> Redrive:
    """Return the redrive whose id begins with `name`; raises NotFoundError if there is none, or several."""
    found = [each for each in seen_redrives(runtime) if name and each.redrive_id.startswith(name.lower())]
    if len(found) != 1:
        how_many = f"{len(found)} redrives begin with" if found else "there is no redrive"
        raise NotFoundError(f"{how_many} {name!r}. `eventbridge dead-letters redrives` lists them.")
    return found[0]


def redrive_document(request: Redrive, counts: Counter[str]) -> dict[str, object]:
    """Return a redrive as JSON, with the number of its dead letters by outcome."""
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


def survey_document(found: Survey) -> dict[str, list[dict[str, object]]]:
    """Return a survey as JSON: the dead letters that a redrive would take, and the others with the reason."""
    return {
        "taken": [{"of": of, "count": count} for of, count in sorted(found.taken.items())],
        "left": [{"of": of, "count": count, "why": why} for (of, why), count in sorted(found.left.items())],
    }
