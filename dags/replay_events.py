"""The Airflow DAG `replay_events`; what it does is in eventbridge.orchestrate.dags.replay_events."""

from __future__ import annotations

from eventbridge.orchestrate.dags.replay_events import replay_events

dag = replay_events()
