"""The log of `route` while Spark is slow."""

from __future__ import annotations

import threading

from eventbridge.airflow.tasks import slow_spark


def test_a_slow_spark_is_logged() -> None:
    """A line appears at each interval, with the command that compiles ahead; a fast Spark logs nothing."""
    logged = threading.Event()
    lines: list[str] = []

    def log_line(text: str) -> None:
        lines.append(text)
        logged.set()

    with slow_spark(log_line):
        pass
    assert lines == []
    with slow_spark(log_line, every_seconds=0.01):
        assert logged.wait(30)

    assert "`eventbridge compile`" in lines[0]
