"""The Airflow DAG `eventbridge_diff_rules`; see eventbridge.airflow.dags.diff_rules."""

from __future__ import annotations

from eventbridge.airflow.dags.diff_rules import diff_rules

dag = diff_rules()
