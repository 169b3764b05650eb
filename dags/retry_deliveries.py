"""The Airflow DAG `retry_deliveries`; what it does is in eventbridge.orchestrate.dags.retry_deliveries."""

from __future__ import annotations

from eventbridge.orchestrate.dags.retry_deliveries import retry_deliveries

dag = retry_deliveries()
