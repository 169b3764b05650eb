"""The Airflow DAG `send_heartbeat`; what it does is in eventbridge.orchestrate.dags.send_heartbeat."""

from __future__ import annotations

from eventbridge.orchestrate.dags.send_heartbeat import send_heartbeat

dag = send_heartbeat()
