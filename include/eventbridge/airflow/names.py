"""Defines the ids and names of DAGs, tasks, XComs, pools and assets, so that all modules use the same ones."""

from __future__ import annotations

from datetime import timedelta

#: The prefix of each DAG id, because the ids share a namespace with the user's DAGs.
PREFIX = "eventbridge_"

RETRY_DAG = "eventbridge_retry_deliveries"
REDRIVE_DAG = "eventbridge_redrive_dead_letters"
REPLAY_DAG = "eventbridge_replay_events"
ARCHIVE_DAG = "eventbridge_replay_archive"
OPERATE_DAG = "eventbridge_operate_rules"
PUBLISH_DAG = "eventbridge_publish_events"
MAINTAIN_DAG = "eventbridge_maintain_store"
QUALITY_DAG = "eventbridge_check_quality"
HEARTBEAT_DAG = "eventbridge_send_heartbeat"
FALLBACK_DAG = "eventbridge_start_waiting_runs"
BACKTEST_DAG = "eventbridge_backtest_rules"
DIFF_DAG = "eventbridge_diff_rules"
EXPLAIN_DAG = "eventbridge_explain_event"
DELIVER_PREFIX = "eventbridge_deliver_"

LISTEN = "listen"
STREAMING = "streaming"
PLAN_RETRIES = "plan_retries"
SETTLE_STALE = "settle_stale"
RESUME_REPLAY = "resume_replay"
BEGIN_REDRIVE = "begin_redrive"
PLAN_REDRIVE = "plan_redrive"
PLAN_REPLAY = "plan_replay"
BEGIN_REPLAY = "begin_replay"
TRIGGER_NEXT_RUN = "trigger_next_run"
PUSH = "push"

#: The XCom in which listen, streaming, plan_retries, plan_redrive and plan_replay pass the batch id to the other tasks.
BATCH_ID = "batch_id"
#: The XCom in which plan_redrive passes on the id of the run's redrive.
REDRIVE_ID = "redrive_id"
#: The XCom in which plan_replay and begin_replay pass on the id of the run's replay.
REPLAY_ID = "replay_id"

#: The pool of pushes for which the ledger has no placement.
UNPLANNED_POOL = "eventbridge.unplanned"

#: The alias under which `eventbridge_start_waiting_runs` emits the events of the assets of runners and retries.
WAITING_ALIAS = "eventbridge_waiting"

#: The asset, and the watcher's subject, of pending deliveries that are due.
RETRIES = "due_deliveries"

#: The watcher counts as alive if it recorded a poll within this time. It records one three times in this time.
WATCHER_ALIVE = timedelta(seconds=60)


def deliver_dag_id(runner: str) -> str:
    """Return the id of a runner's DAG."""
    return f"{DELIVER_PREFIX}{runner}"


def runner_of(dag_id: str) -> str | None:
    """Return the runner of a deliver DAG; None for any other DAG."""
    return dag_id.removeprefix(DELIVER_PREFIX) if dag_id.startswith(DELIVER_PREFIX) else None


def runner_subject(runner: str) -> str:
    """Return the name of a runner's asset, which is also the watcher's subject for the runner's waiting events."""
    return f"events_{runner}"
