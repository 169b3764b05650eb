"""The Airflow DAG `eventbridge_retry_deliveries`; see eventbridge.airflow.dags.retry_deliveries."""

from __future__ import annotations

from eventbridge.airflow.dags.retry_deliveries import retry_deliveries

dag = retry_deliveries()
