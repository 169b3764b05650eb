"""The Airflow DAG `eventbridge_redrive_dead_letters`; see eventbridge.airflow.dags.redrive_dead_letters."""

from __future__ import annotations

from eventbridge.airflow.dags.redrive_dead_letters import redrive_dead_letters

dag = redrive_dead_letters()
