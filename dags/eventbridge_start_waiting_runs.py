"""The Airflow DAG `eventbridge_start_waiting_runs`; see eventbridge.airflow.dags.start_waiting_runs."""

from __future__ import annotations

from eventbridge.airflow.dags.start_waiting_runs import start_waiting_runs

dag = start_waiting_runs()
