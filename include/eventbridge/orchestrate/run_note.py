"""The note of a run in Airflow: what of its batch is dead-lettered or waits, shown beside the run in Airflow's lists.

A task of Airflow 3.3 cannot write it by itself (apache/airflow 64890), so its REST API does.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

from eventbridge.errors import ConnectionUnusable
from eventbridge.orchestrate.airflow_api import CONNECTION_ID, AirflowApi, AirflowError
from eventbridge.orchestrate.connections import airflow_connection

log = logging.getLogger(__name__)

#: What the line of ours begins with: a person's own note stays as it is.
_OURS = "EventBridge: "
#: What Airflow takes of a note, in characters.
_LONGEST = 1_000


class AirflowNotes(AirflowApi):
    """A client of Airflow's REST API for the notes of runs; closed by its opener."""

    needs = "read and edit runs of EventBridge's DAGs"

    def write(self, dag_id: str, run_id: str, text: str) -> None:
        """Write a line into the note of a run, in place of the line that was written before; raises AirflowError."""
        path = f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}"
        note = noted(self.call("GET", path)["note"] or "", text)
        self.call("PATCH", path, params={"update_mask": ["note"]}, json={"note": note})


def noted(note: str, text: str) -> str:
    """Return a note with our line as its last one."""
    theirs = [line for line in note.splitlines() if not line.startswith(_OURS)]
    room = _LONGEST - len(_OURS) - sum(len(line) + 1 for line in theirs)
    if room < 4:  # no room beside what a person wrote
        return note
    ours = text if len(text) <= room else f"{text[: room - 3]}..."
    return "\n".join([*theirs, f"{_OURS}{ours}"])


def note_run(context: Any, text: str) -> None:
    """Write what of a run's batch is in trouble into the run's note; a refusal is logged, and fails nothing."""
    dag_run = context["dag_run"]
    try:
        with AirflowNotes(airflow_connection(CONNECTION_ID)) as notes:
            notes.write(dag_run.dag_id, dag_run.run_id, text)
    except (AirflowError, ConnectionUnusable) as error:
        log.warning("the run has no note: %s", error)
