"""The Airflow DAG `eventbridge_check_quality`; see eventbridge.airflow.dags.check_quality."""

from __future__ import annotations

from eventbridge.airflow.dags.check_quality import check_quality

dag = check_quality()
