"""Writes the note of a run in Airflow: the dead letters and pending deliveries of its batch, shown in Airflow's lists.

A task of Airflow 3.3 cannot write it (apache/airflow 64890), so this uses the REST API.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

from eventbridge.airflow.airflow_api import CONNECTION_ID, AirflowApi, AirflowError
from eventbridge.airflow.connections import airflow_connection
from eventbridge.errors import ConnectionUnusable

log = logging.getLogger(__name__)

#: The prefix of EventBridge's line: a person's own note stays as it is.
_OURS = "EventBridge: "
#: Airflow's limit for a note, in characters.
_LONGEST = 1_000


class AirflowNotes(AirflowApi):
    """A client of Airflow's REST API for the notes of runs. Its opener closes it."""

    needs = "read and edit runs of EventBridge's DAGs"

    def write(self, dag_id: str, run_id: str, text: str) -> None:
        """Write a line into the note of a run, replacing the earlier one; raises AirflowError."""
        path = f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}"
        note = noted(self.call("GET", path)["note"] or "", text)
        self.call("PATCH", path, params={"update_mask": ["note"]}, json={"note": note})


def noted(note: str, text: str) -> str:
    """Return a note with EventBridge's line as its last line."""
    theirs = [line for line in note.splitlines() if not line.startswith(_OURS)]
    available = _LONGEST - len(_OURS) - sum(len(line) + 1 for line in theirs)
    if available < 4:  # a person's note fills it
        return note
    ours = text if len(text) <= available else f"{text[: available - 3]}..."
    return "\n".join([*theirs, f"{_OURS}{ours}"])


def note_run(context: Any, text: str) -> None:
    """Write the text into the run's note. A refusal is logged, and the task still succeeds."""
    dag_run = context["dag_run"]
    try:
        with AirflowNotes(airflow_connection(CONNECTION_ID)) as notes:
            notes.write(dag_run.dag_id, dag_run.run_id, text)
    except (AirflowError, ConnectionUnusable) as error:
        log.warning("cannot write the note of the run: %s", error)
