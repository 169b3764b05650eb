"""The Airflow DAG `eventbridge_publish_events`; see eventbridge.orchestrate.dags.publish_events."""

from __future__ import annotations

from eventbridge.orchestrate.dags.publish_events import publish_events

dag = publish_events()
