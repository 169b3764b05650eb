"""The Airflow DAG `explain_event`; what it does is in eventbridge.orchestrate.dags.explain_event."""

from __future__ import annotations

from eventbridge.orchestrate.dags.explain_event import explain_event

dag = explain_event()
