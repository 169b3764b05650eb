"""The Airflow DAG `eventbridge_start_waiting_runs`; see eventbridge.orchestrate.dags.start_waiting_runs."""

from __future__ import annotations

from eventbridge.orchestrate.dags.start_waiting_runs import start_waiting_runs

dag = start_waiting_runs()
