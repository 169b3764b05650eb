"""The Airflow DAG `eventbridge_backtest_rules`; see eventbridge.airflow.dags.backtest_rules."""

from __future__ import annotations

from eventbridge.airflow.dags.backtest_rules import backtest_rules

dag = backtest_rules()
