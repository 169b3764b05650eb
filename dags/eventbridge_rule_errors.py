"""Shows errors in rule files as an Airflow import error; defines no DAG. DAGs continue with the last valid rules."""

from __future__ import annotations

from eventbridge.airflow.schedule import refuse_rule_errors

refuse_rule_errors()
