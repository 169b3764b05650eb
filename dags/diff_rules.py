"""The Airflow DAG `diff_rules`; what it does is in eventbridge.orchestrate.dags.diff_rules."""

from __future__ import annotations

from eventbridge.orchestrate.dags.diff_rules import diff_rules

dag = diff_rules()
