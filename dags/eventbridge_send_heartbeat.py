"""The Airflow DAG `eventbridge_send_heartbeat`; see eventbridge.orchestrate.dags.send_heartbeat."""

from __future__ import annotations

from eventbridge.orchestrate.dags.send_heartbeat import send_heartbeat

dag = send_heartbeat()
