"""Which runs of EventBridge's DAGs processed a batch, and which batch a run processed, from the XCom of their first
tasks.

Only Airflow's api-server uses it: it queries Airflow's database.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select

from eventbridge.airflow.names import BATCH_ID, REDRIVE_DAG, REPLAY_DAG, RETRY_DAG, deliver_dag_id
from eventbridge.api.page.session import AirflowRun
from eventbridge.model.batch import Batch

#: How long before its planning and after its commit a batch may appear in an XCom.
_AROUND = timedelta(minutes=2)
_MOST_RUNS = 20


def runs_of(batch: Batch) -> list[AirflowRun]:
    """Return the runs that processed a batch, oldest first: if a run dies, another continues."""
    dag = {"retry": RETRY_DAG, "redrive": REDRIVE_DAG, "replay": REPLAY_DAG}.get(batch.kind)
    wanted = select(XComModel.dag_id, XComModel.run_id, XComModel.value).where(
        XComModel.key == BATCH_ID,
        XComModel.dag_id == (dag or deliver_dag_id(batch.runner)),
        XComModel.timestamp >= batch.planned_at - _AROUND,
    )
    if batch.committed_at is not None:
        wanted = wanted.where(XComModel.timestamp <= batch.committed_at + _AROUND)
    with create_session() as session:
        found = session.execute(wanted.order_by(XComModel.timestamp)).all()
    return [AirflowRun(row.dag_id, row.run_id) for row in found if _batch_in(row.value) == batch.batch_id][:_MOST_RUNS]


def batch_of(run: AirflowRun) -> str | None:
    """Return the batch that a run processed; None if there is no such run, or if it had no batch."""
    wanted = select(XComModel.value).where(
        XComModel.key == BATCH_ID, XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id
    )
    with create_session() as session:
        found = session.scalars(wanted).first()
    return _batch_in(found) or None


def _batch_in(value: Any) -> str:
    """Return the batch id in an XCom, whose value is JSON text or the decoded string."""
    return str(value or "").strip('"')
