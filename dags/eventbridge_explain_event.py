"""The Airflow DAG `eventbridge_explain_event`; see eventbridge.airflow.dags.explain_event."""

from __future__ import annotations

from eventbridge.airflow.dags.explain_event import explain_event

dag = explain_event()
