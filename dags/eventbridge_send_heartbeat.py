"""The Airflow DAG `eventbridge_send_heartbeat`; see eventbridge.airflow.dags.send_heartbeat."""

from __future__ import annotations

from eventbridge.airflow.dags.send_heartbeat import send_heartbeat

dag = send_heartbeat()
