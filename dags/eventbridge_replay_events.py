"""The Airflow DAG `eventbridge_replay_events`; see eventbridge.airflow.dags.replay_events."""

from __future__ import annotations

from eventbridge.airflow.dags.replay_events import replay_events

dag = replay_events()
