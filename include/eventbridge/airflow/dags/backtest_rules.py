"""The Airflow DAG `eventbridge_backtest_rules`: runs candidate rules over the archive and writes a report.

It delivers nothing.

Its form is in eventbridge.airflow.forms.backtest_rules, its task in eventbridge.airflow.backtest.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.backtest import BACKTEST_LIMIT, backtest
from eventbridge.airflow.forms.backtest_rules import backtest_params
from eventbridge.airflow.forms.choices import choices
from eventbridge.airflow.names import BACKTEST_DAG
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.slow_lane import give_way_as_old

GUIDE = """
Runs a rule over archived events: trigger the DAG, name the rule or paste a rule file, and choose the time range.

It delivers nothing. The report - matches by hour, rate, largest minute, failures with reasons, sample outputs - is
written to the store as JSON and Markdown; the task's log links both. `eventbridge rules backtest` does the same.
"""


def backtest_rules() -> DAG:
    """Return the DAG."""
    airflow_settings()  # refuses executors that cannot share the ledger
    with DAG(
        dag_id=BACKTEST_DAG,
        description="Runs candidate rules over the archive and writes a report",
        doc_md=GUIDE,
        schedule=None,
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=2,
        dagrun_timeout=BACKTEST_LIMIT,
        default_args={"owner": OWNER, "pre_execute": give_way_as_old},
        params=backtest_params(choices()),
        tags=["eventbridge", "operate"],
    ) as dag:
        backtest()
    return dag
