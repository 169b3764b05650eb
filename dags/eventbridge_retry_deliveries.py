"""The Airflow DAG `eventbridge_retry_deliveries`; see eventbridge.orchestrate.dags.retry_deliveries."""

from __future__ import annotations

from eventbridge.orchestrate.dags.retry_deliveries import retry_deliveries

dag = retry_deliveries()
