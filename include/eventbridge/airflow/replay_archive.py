"""The tasks of the DAG `eventbridge_replay_archive`: each run, created by Airflow's backfill, is an hour of archive."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from eventbridge.airflow.form_values import form_values
from eventbridge.airflow.forms.replay_archive import archive_params
from eventbridge.airflow.names import BEGIN_REPLAY, REPLAY_ID
from eventbridge.airflow.plain_failure import plain_failures, without_traceback
from eventbridge.airflow.recorded_form import recorded_form
from eventbridge.airflow.replay import log_survey, request_of, run_of_replay
from eventbridge.airflow.tasks import TASK, end_run, stage
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.model.redelivery import Replay
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


@task(task_id=BEGIN_REPLAY, **TASK, do_xcom_push=False)
@without_traceback
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
    raise run_of_replay(replay.replay_id, f"asked_{times}")


def replay_of_hour(
    runtime: Runtime, params: Mapping[str, Any], hour: tuple[datetime, datetime], run: str, times: int
) -> Replay | None:
    """Return the replay of a run that was cleared `times` times; None for a dry run, whose result is logged."""
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
    """Waits in the triggerer until the run's replay has ended; fails if the replay is cancelled or takes too long."""

    def execute(self, context: Context) -> None:
        """Defer to the triggerer."""
        from eventbridge.airflow.replay_end import ReplayEnd

        replay_id = context["ti"].xcom_pull(task_ids=BEGIN_REPLAY, key=REPLAY_ID)
        with plain_failures(), stage() as runtime:
            replay = runtime.ledger.replay(replay_id)
            until = runtime.ledger.now() + timedelta(seconds=runtime.settings.replay_timeout)
        self.log.info("waiting until replay %s has ended", replay_id)
        self.defer(trigger=ReplayEnd(replay_id, replay.run, until.isoformat()), method_name="ended")

    def ended(self, context: Context, event: dict[str, str]) -> None:
        """Log the result of the replay; fail the run unless the replay is done, and pause a replay that takes too
        long.
        """
        replay_id = context["ti"].xcom_pull(task_ids=BEGIN_REPLAY, key=REPLAY_ID)
        with plain_failures(), stage() as runtime:
            report_end(runtime, replay_id, event["state"])


def report_end(runtime: Runtime, replay_id: str, state: str) -> None:
    """Log the result of a replay; raises AirflowFailException unless its state is `done`."""
    from eventbridge.airflow.replay_end import LATE
    from eventbridge.replay.account import account_of

    if state == LATE and not runtime.ledger.set_replay_state(replay_id, "running", "paused"):
        state = runtime.ledger.replay(replay_id).state  # it has ended meanwhile, or is paused
    account = account_of(runtime, runtime.ledger.replay(replay_id))
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(account.outcomes.items())) or "none delivered"
    log.info("replay %s: %s events read, %s taken: %s", replay_id, account.looked_at, account.taken, counts)
    if state == "cancelled":
        raise AirflowFailException(f"replay {replay_id} was cancelled. To replay the hour, backfill it again.")
    if state != "done":
        raise AirflowFailException(
            f"replay {replay_id} has not ended within EVENTBRIDGE_REPLAY_TIMEOUT, and is paused. "
            "Backfill the hour with 'Missing and Errored Runs' to continue it under the same id."
        )
