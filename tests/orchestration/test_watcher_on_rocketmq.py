"""The watcher of a runner whose bus is a topic of a real RocketMQ."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from services.rocketmq import RocketMQ, make_topics

from eventbridge.airflow.names import runner_subject
from eventbridge.airflow.watch import Watch
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.runtime.open import open_runtime

RULES = """
buses: {trains: {source: {type: rocketmq, connection: shop, topics: [watcher-trains], start_at: earliest}}}
rules: {all: {bus: trains, pattern: {}, targets: {log: {type: file, path: /tmp/never-written/trains.jsonl}}}}
"""


def test_the_watcher_starts_a_run_for_what_is_published(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """No run starts while nothing waits; one starts for a message."""
    make_topics(rocketmq, "watcher-trains", partitions=2)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "trains.yaml").write_text(RULES)
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    settings = Settings(home=tmp_path / "home", rules_folder=tmp_path / "rules")
    connections = connections_from_environment({"EVENTBRIDGE_CONN_SHOP": rocketmq.connection})
    runtime = open_runtime(settings, connections, lambda: now)
    with closing(Watch(runtime)) as watch:
        assert listen(runtime, "trains") is None, "it registers the partitions"
        now += timedelta(seconds=2)
        assert list(watch.check()) == []

        with closing(runtime.open_publisher(runtime.rule_set().buses["trains"])) as publisher:
            publisher.publish([(b"{}", None)])
        now += timedelta(seconds=2)
        assert list(watch.check()) == [runner_subject("trains")]
