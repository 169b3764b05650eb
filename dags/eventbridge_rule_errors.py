"""Shows errors in rule files as an Airflow import error; makes no DAG. The DAGs go on with the last good rules."""

from __future__ import annotations

from eventbridge.orchestrate.schedule import refuse_rule_errors

refuse_rule_errors()
