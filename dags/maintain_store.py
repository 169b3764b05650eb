"""The Airflow DAG `maintain_store`; what it does is in eventbridge.orchestrate.dags.maintain_store."""

from __future__ import annotations

from eventbridge.orchestrate.dags.maintain_store import maintain_store

dag = maintain_store()
