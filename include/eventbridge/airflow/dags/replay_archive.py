"""Defines the DAG `eventbridge_replay_archive`, each run of which redelivers one hour of the archive.

Its runs are created by a backfill in Airflow, never by a schedule.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, Context, CronDataIntervalTimetable, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from eventbridge.airflow.dags.replay_events import log_survey, replay_params, request_of, trigger_for_replay
from eventbridge.airflow.form_fields import NO_CHOICES, Choices, choices, form_values, recorded_form
from eventbridge.airflow.names import ARCHIVE_DAG, BEGIN_REPLAY, REPLAY_ID
from eventbridge.airflow.schedule import BACKFILL_TYPES, BEGINNING, OWNER
from eventbridge.airflow.tasks import STAGE, TASK, end_run, give_way_as_old, hide_traceback, plain_failures, stage
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.model.redelivery import Replay
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

GUIDE = """
Delivers whole hours of the archive again: choose *Trigger*, then *Backfill*, the hours, and how existing runs are
reprocessed. Fill in *Bus* and *Rules* (`*` for all rules), and tick *Override parameters on existing runs*: without it
Airflow passes no parameters to the runs, and they fail. *Dry run* is on until you switch it off.

Each run delivers one hour, as one replay in the ledger. It starts the replay, and waits in the triggerer while runs of
`eventbridge_replay_events` process the replay's batches. If you mark the run failed, or clear it, its replay is
cancelled. If the replay takes longer than `EVENTBRIDGE_REPLAY_TIMEOUT`, the run pauses it and fails; reprocess the run
to continue the replay. The parameters are those of `eventbridge_replay_events`. No schedule starts a run.
"""


def replay_archive() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=ARCHIVE_DAG,
        description="Delivers hours of archive again, by backfill",
        doc_md=GUIDE,
        schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
        # Backfills require a schedule. This one has no interval between its start and its end, so the scheduler starts
        # nothing.
        start_date=BEGINNING,
        end_date=BEGINNING,
        catchup=False,
        allowed_run_types=BACKFILL_TYPES,
        max_active_runs=4,
        default_args={"owner": OWNER, "pre_execute": give_way_as_old},
        params=archive_params(choices()),
        tags=["eventbridge", "replay"],
    ) as dag:
        # If a retry of `begin_replay` finds that it has already triggered its run, Airflow marks it as skipped.
        begin_replay() >> WaitForReplay(task_id="wait_for_replay", trigger_rule="none_failed", **STAGE)
    return dag


@task(task_id=BEGIN_REPLAY, **TASK, do_xcom_push=False)
@hide_traceback
def begin_replay() -> None:
    """Start or continue the replay of the run's hour; `eventbridge_replay_events` processes its batches."""
    context = get_current_context()
    run = context["dag_run"]
    since, until = context.get("data_interval_start"), context.get("data_interval_end")
    times = run.clear_number or 0
    with stage() as runtime:
        form = form_values(context, archive_params())
        if since is None or until is None:
            raise UserError(
                "this run has no hour. Choose Backfill in the trigger dialogue, or trigger eventbridge_replay_events."
            )
        name = f"{context['dag'].dag_id} {context['run_id']}"
        with recorded_form(runtime, context, {**form, "from": since.isoformat(), "to": until.isoformat()}):
            replay = replay_of_hour(runtime, form, (since, until), name, times)
    if replay is None:
        end_run(context)
        return
    context["ti"].xcom_push(key=REPLAY_ID, value=replay.replay_id)
    log.info("replay %s of %s to %s", replay.replay_id, since, until)
    raise trigger_for_replay(replay.replay_id, f"asked_{times}")


def replay_of_hour(
    runtime: Runtime, params: Mapping[str, Any], hour: tuple[datetime, datetime], run: str, times: int
) -> Replay | None:
    """Return the replay of a run that was cleared `times` times. A dry run only logs, and returns None."""
    from eventbridge.replay.plan import begin_or_continue

    since, until = (moment.isoformat() for moment in hour)
    if not params["bus"]:
        raise UserError(
            "no bus given. Backfill again: fill in Bus and Rules, and tick 'Override parameters on existing runs'. "
            "Without it, Airflow passes no parameters to the run."
        )
    request = request_of(runtime, {**params, "from": since, "to": until})
    if params["dry_run"]:
        log_survey(runtime, request)
        return None
    return begin_or_continue(runtime, request, run, times)


class WaitForReplay(BaseOperator):
    """Waits in the triggerer until the run's replay has ended. Fails if the replay is cancelled or takes too long."""

    def execute(self, context: Context) -> None:
        """Defer to the triggerer."""
        from eventbridge.airflow.replay_end import ReplayEnd

        replay_id = context["ti"].xcom_pull(task_ids=BEGIN_REPLAY, key=REPLAY_ID)
        with plain_failures(), stage() as runtime:
            replay = runtime.ledger.replays.get(replay_id)
            until = runtime.ledger.now() + timedelta(seconds=runtime.settings.replay_timeout)
        self.log.info("waiting until replay %s has ended", replay_id)
        self.defer(trigger=ReplayEnd(replay_id, replay.run, until.isoformat()), method_name="ended")

    def ended(self, context: Context, event: dict[str, str]) -> None:
        """Log the result of the replay, and fail unless it is done. A replay that takes too long is paused."""
        replay_id = context["ti"].xcom_pull(task_ids=BEGIN_REPLAY, key=REPLAY_ID)
        with plain_failures(), stage() as runtime:
            report_end(runtime, replay_id, event["state"])


def report_end(runtime: Runtime, replay_id: str, state: str) -> None:
    """Log the result of a replay, and pause it if it is late. Raises AirflowFailException unless it is done."""
    from eventbridge.airflow.replay_end import LATE
    from eventbridge.replay.account import account_of

    if state == LATE and not runtime.ledger.replays.set_state(replay_id, "running", "paused"):
        state = runtime.ledger.replays.get(replay_id).state  # the replay has just ended, or was paused before
    account = account_of(runtime, runtime.ledger.replays.get(replay_id))
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(account.outcomes.items())) or "none delivered"
    log.info("replay %s: %s events read, %s taken: %s", replay_id, account.read, account.taken, counts)
    if state == "cancelled":
        raise AirflowFailException(f"replay {replay_id} was cancelled. To replay the hour, backfill it again.")
    if state != "done":
        raise AirflowFailException(
            f"replay {replay_id} did not end within EVENTBRIDGE_REPLAY_TIMEOUT, and is paused. "
            "Backfill the hour with 'Missing and Errored Runs' to continue it under the same id."
        )


#: The fields that are not in the form, because the run has a fixed hour, and finds the replay to continue itself.
_FIELDS_OF_RUN = ("from", "to", "replay_id")


def archive_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: that of `eventbridge_replay_events` without the fields in _FIELDS_OF_RUN."""
    return {name: param for name, param in replay_params(propose).items() if name not in _FIELDS_OF_RUN}
