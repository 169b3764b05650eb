"""The Airflow DAG `start_waiting_runs`; what it does is in eventbridge.orchestrate.dags.start_waiting_runs."""

from __future__ import annotations

from eventbridge.orchestrate.dags.start_waiting_runs import start_waiting_runs

dag = start_waiting_runs()
