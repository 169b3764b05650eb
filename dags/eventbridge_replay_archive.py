"""The Airflow DAG `eventbridge_replay_archive`; see eventbridge.airflow.dags.replay_archive."""

from __future__ import annotations

from eventbridge.airflow.dags.replay_archive import replay_archive

dag = replay_archive()
