"""The Airflow DAG `operate_rules`; what it does is in eventbridge.orchestrate.dags.operate_rules."""

from __future__ import annotations

from eventbridge.orchestrate.dags.operate_rules import operate_rules

dag = operate_rules()
