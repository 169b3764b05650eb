"""The Airflow DAG `eventbridge_replay_archive`: delivers an hour of archive again per run, only by Airflow's backfill.

Its form is in eventbridge.airflow.forms.replay_archive, its tasks in eventbridge.airflow.replay_archive.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronDataIntervalTimetable

from eventbridge.airflow.forms.choices import choices
from eventbridge.airflow.forms.replay_archive import archive_params
from eventbridge.airflow.names import ARCHIVE_DAG
from eventbridge.airflow.replay_archive import WaitForReplay, begin_replay
from eventbridge.airflow.schedule import BACKFILL_TYPES, BEGINNING, OWNER
from eventbridge.airflow.slow_lane import give_way_as_old
from eventbridge.airflow.tasks import STAGE

GUIDE = """
Delivers hours of archive again: choose *Trigger*, then *Backfill*, the hours, and how existing runs are reprocessed.
Fill in *Bus* and *Rules* (`*` for all rules), and tick *Override parameters on existing runs*: without it Airflow
passes no parameters to the runs, and they fail. *Dry run* is on until you switch it off.

Each run is one hour, and one replay in the ledger. It starts the replay, and waits in the triggerer while runs of
`eventbridge_replay_events` process its batches. Marking the run failed, or clearing it, cancels its replay. A run that
waits longer than `EVENTBRIDGE_REPLAY_TIMEOUT` pauses its replay and fails; reprocess it to continue the replay.
The parameters are those of `eventbridge_replay_events`. Only a backfill or a person starts a run.
"""


def replay_archive() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=ARCHIVE_DAG,
        description="Delivers hours of archive again, by backfill",
        doc_md=GUIDE,
        schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
        # Backfills require a schedule. This one ends before it begins, so the scheduler starts nothing.
        start_date=BEGINNING,
        end_date=BEGINNING,
        catchup=False,
        allowed_run_types=BACKFILL_TYPES,
        max_active_runs=4,
        default_args={"owner": OWNER, "pre_execute": give_way_as_old},
        params=archive_params(choices()),
        tags=["eventbridge", "replay"],
    ) as dag:
        # A retry of `begin_replay` is skipped if it has already triggered its run.
        begin_replay() >> WaitForReplay(task_id="wait_for_replay", trigger_rule="none_failed", **STAGE)
    return dag
