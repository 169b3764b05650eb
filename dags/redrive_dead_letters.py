"""The Airflow DAG `redrive_dead_letters`; what it does is in eventbridge.orchestrate.dags.redrive_dead_letters."""

from __future__ import annotations

from eventbridge.orchestrate.dags.redrive_dead_letters import redrive_dead_letters

dag = redrive_dead_letters()
