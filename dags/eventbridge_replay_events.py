"""The Airflow DAG `eventbridge_replay_events`; see eventbridge.orchestrate.dags.replay_events."""

from __future__ import annotations

from eventbridge.orchestrate.dags.replay_events import replay_events

dag = replay_events()
