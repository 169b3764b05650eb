"""Defines the DAG `eventbridge_diff_rules`, which compares two candidates over the archive and writes a report.

Its form and its task are in eventbridge.airflow.dags.backtest_rules.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.dags.backtest_rules import BACKTEST_LIMIT, diff, diff_params
from eventbridge.airflow.form_fields import choices
from eventbridge.airflow.names import DIFF_DAG
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.tasks import give_way_as_old

GUIDE = """
Compares rules over archived events: trigger the DAG, name or paste A and B, and choose the time range.

It delivers nothing. The report shows events that only B matches, events that only A matches, and events whose outputs
differ. It is written to the store as JSON and Markdown, and the task's log has the addresses of both files.
`eventbridge rules diff` does the same.
"""


def diff_rules() -> DAG:
    """Return the DAG."""
    airflow_settings()  # refuses executors that cannot share the ledger
    with DAG(
        dag_id=DIFF_DAG,
        description="Compares two candidates over the archive and writes a report",
        doc_md=GUIDE,
        schedule=None,
        max_active_runs=2,
        dagrun_timeout=BACKTEST_LIMIT,
        params=diff_params(choices()),
        tags=["eventbridge", "operate"],
        **dag_options(pre_execute=give_way_as_old),
    ) as dag:
        diff()
    return dag
