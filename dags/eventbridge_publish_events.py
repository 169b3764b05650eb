"""The Airflow DAG `eventbridge_publish_events`; see eventbridge.airflow.dags.publish_events."""

from __future__ import annotations

from eventbridge.airflow.dags.publish_events import publish_events

dag = publish_events()
