"""The Airflow DAG `backtest_rules`; what it does is in eventbridge.orchestrate.dags.backtest_rules."""

from __future__ import annotations

from eventbridge.orchestrate.dags.backtest_rules import backtest_rules

dag = backtest_rules()
