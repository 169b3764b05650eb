"""The Airflow DAG `check_quality`; what it does is in eventbridge.orchestrate.dags.check_quality."""

from __future__ import annotations

from eventbridge.orchestrate.dags.check_quality import check_quality

dag = check_quality()
