"""In which order files of tests begin where several run at a time, and which of them never do at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).parents[1]

#: Files in lines: of each line one runs at a time, in one process. The first two start an Airflow and a Spark each;
#: those of the others share a Spark Connect server, a Kafka and a RocketMQ, or an API with deliveries.
_LINES = (
    (
        "tests/end_to_end/test_deliveries_survive.py",
        "tests/end_to_end/test_targets_heal.py",
        "tests/end_to_end/test_a_day.py",
    ),
    (
        "tests/end_to_end/test_operators_use_airflow.py",
        "tests/end_to_end/test_operators_trigger_dags.py",
    ),
    (
        "tests/spark/test_spark_connect.py",
        "tests/spark/test_spark_poison.py",
        "tests/spark/test_spark_sql.py",
        "tests/spark/test_spark_s3.py",
        "tests/spark/test_spark_budgeted.py",
        "tests/spark/test_worker_daemon.py",
        "tests/spark/test_backtest_command.py",
        "tests/spark/test_deliver_command.py",
        "tests/spark/test_match_frame.py",
        "tests/spark/test_replay_command.py",
        "tests/spark/test_spark_conformance.py",
        "tests/spark/test_spark_old_work.py",
        "tests/spark/test_spark_reload.py",
        "tests/security/test_sql_that_grows.py",
        "tests/security/test_lambdas_over_large_arrays.py",
        "tests/security/test_shell_through_sql.py",
        "tests/security/test_passwords_in_urls.py",
        "tests/security/test_pairwise_functions_in_sql.py",
        "tests/security/test_searches_for_long_texts.py",
        "tests/security/test_slow_patterns_in_sql.py",
        "tests/docs/test_pages.py",
    ),
    (
        "tests/pipeline/test_broker_bus.py",
        "tests/spark/test_spark_landing.py",
        "tests/pipeline/sending/test_broker_target.py",
        "tests/pipeline/sending/test_rocketmq_order.py",
        "tests/pipeline/sending/test_try_target.py",
        "tests/pipeline/test_kafka_bus.py",
        "tests/pipeline/test_rocketmq_bus.py",
        "tests/pipeline/test_rocketmq_pop.py",
        "tests/api/test_large_events.py",
        "tests/cli/test_rocketmq_bus.py",
        "tests/orchestration/test_watcher_on_rocketmq.py",
        "tests/contracts/test_broker_source.py",
        "tests/contracts/test_kafka_source.py",
        "tests/contracts/test_log_publishing_contract.py",
        "tests/contracts/test_log_reading_contract.py",
        "tests/contracts/test_log_source_contract.py",
        "tests/contracts/test_rocketmq_source.py",
        "tests/contracts/test_target_contract.py",
    ),
    (
        "tests/api/test_page.py",
        "tests/api/test_acting.py",
        "tests/api/test_lists.py",
        "tests/api/test_owners.py",
        "tests/api/test_page_acts.py",
        "tests/api/test_page_replays.py",
        "tests/api/test_reading.py",
    ),
)
#: What begins first: what takes longest.
_FIRST = (
    *_LINES[0],
    *_LINES[1],
    "tests/pipeline/test_listen.py",  # no server, nor in the next line: two Airflows start beside it
    *_LINES[4],
    *_LINES[2],
    "tests/benchmarks/test_small_benchmarks.py",
    *_LINES[3],
    "tests/orchestration/test_installed_wheel.py",
)


class Lines(LoadFileScheduling):
    """Gives a worker a file at a time, or a whole line of them."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return next((line[0] for line in _LINES if file in line), file)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of the files that take longest before all others; the order is the same otherwise."""
    missing = [name for name in _FIRST if not (_ROOT / name).is_file()]
    assert missing == [], "tests/long_files.py names files that there are not"
    places = {_ROOT / name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
