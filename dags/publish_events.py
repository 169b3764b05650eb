"""The Airflow DAG `publish_events`; what it does is in eventbridge.orchestrate.dags.publish_events."""

from __future__ import annotations

from eventbridge.orchestrate.dags.publish_events import publish_events

dag = publish_events()
