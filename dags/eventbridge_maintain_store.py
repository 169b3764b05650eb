"""The Airflow DAG `eventbridge_maintain_store`; see eventbridge.airflow.dags.maintain_store."""

from __future__ import annotations

from eventbridge.airflow.dags.maintain_store import maintain_store

dag = maintain_store()
