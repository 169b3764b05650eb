"""The Airflow DAG `eventbridge_operate_rules`: pauses, disables, reprioritises or slows a rule or a target, by a form.

Its form is in eventbridge.airflow.forms.operate_rules, its task in eventbridge.airflow.operate.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.forms.choices import choices
from eventbridge.airflow.forms.operate_rules import operate_params
from eventbridge.airflow.names import OPERATE_DAG
from eventbridge.airflow.operate import operate
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings

GUIDE = """
Sets or clears an override of a rule or a target: trigger the DAG and fill in the form. An override takes effect with
the next task and lasts until it is cleared; `eventbridge status` shows each override, who set it, and when.

| action | does |
|---|---|
| pause, resume rule | events are still matched, and the rule's deliveries wait; other rules are not affected |
| pause, resume target | the same for one target |
| disable, enable rule | as `enabled: false`: **events that arrive meanwhile never reach it**; tick *Confirm* |
| set, clear priority | high, medium or low: the rule's weight and, without a pool of its own, its shared pool |
| enable target | returns a disabled or degraded target to service; its deliveries on hold become due |
| release rule | releases a rule on hold: routing or its `expect` failed, or a delivery may not be dead-lettered |
| set, clear rate | the delivery rate of a target, such as 10/s |

`eventbridge rules` and `eventbridge targets` have commands for the same actions.
"""


def operate_rules() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=OPERATE_DAG,
        description="Pauses, disables, reprioritises or slows a rule or a target",
        doc_md=GUIDE,
        schedule=None,
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=1,
        dagrun_timeout=run_limit(airflow_settings()),
        default_args={"owner": OWNER},
        params=operate_params(choices()),
        tags=["eventbridge", "operate"],
    ) as dag:
        operate()
    return dag
