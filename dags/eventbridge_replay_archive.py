"""The Airflow DAG `eventbridge_replay_archive`; see eventbridge.orchestrate.dags.replay_archive."""

from __future__ import annotations

from eventbridge.orchestrate.dags.replay_archive import replay_archive

dag = replay_archive()
