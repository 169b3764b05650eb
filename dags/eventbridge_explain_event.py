"""The Airflow DAG `eventbridge_explain_event`; see eventbridge.orchestrate.dags.explain_event."""

from __future__ import annotations

from eventbridge.orchestrate.dags.explain_event import explain_event

dag = explain_event()
