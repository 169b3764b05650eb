"""The Airflow DAG `eventbridge_operate_rules`; see eventbridge.airflow.dags.operate_rules."""

from __future__ import annotations

from eventbridge.airflow.dags.operate_rules import operate_rules

dag = operate_rules()
