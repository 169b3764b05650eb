"""The Airflow DAG `eventbridge_deliver_<runner>`; see eventbridge.airflow.dags.deliver_events."""

from __future__ import annotations

from eventbridge.airflow.dags.deliver_events import deliver_events
from eventbridge.airflow.names import deliver_dag_id
from eventbridge.airflow.schedule import runners_to_parse, slot_warning

runners = runners_to_parse()
warning = slot_warning(runners)
for name, task_seconds in runners.items():
    globals()[deliver_dag_id(name)] = deliver_events(name, task_seconds, warning)
