"""The Airflow DAG `eventbridge_operate_rules`: pauses, disables, reprioritises or slows a rule or a target, by a form.

Its form is in eventbridge.orchestrate.forms.operate_rules, its task in eventbridge.orchestrate.operate.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.orchestrate.forms.choices import choices
from eventbridge.orchestrate.forms.operate_rules import operate_params
from eventbridge.orchestrate.names import OPERATE_DAG
from eventbridge.orchestrate.operate import operate
from eventbridge.orchestrate.run_limit import run_limit
from eventbridge.orchestrate.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.orchestrate.settings import airflow_settings

GUIDE = """
Says something of a rule, or of one of its targets: trigger it and fill in the form. It holds from the start of the next
task, until it is cleared; `eventbridge status` shows who said what, and since when.

| action | does |
|---|---|
| pause, resume rule | events go on being matched, deliveries of the rule wait; nobody else does |
| pause, resume target | the same for one target |
| disable, enable rule | as `enabled: false`: nothing is matched, **events pass the rule by for ever**; tick *Confirm* |
| set, clear priority | high, medium or low: weight, and the shared pool of a rule without its own |
| enable target | takes a target that was disabled, or is degraded, back into service; what is on hold for it is due |
| release rule | lets a rule go on on hold: routing or its `expect` failed, or a delivery may not be dead-lettered |
| set, clear rate | of a target, such as 10/s |

It does what `eventbridge rules pause` and its neighbours do.
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
