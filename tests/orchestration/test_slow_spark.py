"""What the log of `route` says while Spark takes long."""

from __future__ import annotations

import threading

from eventbridge.orchestrate.slow_spark import slow_spark


def test_a_slow_spark_is_logged() -> None:
    """Each time that the wait is over, with the command that compiles beforehand; a quick one is not."""
    told = threading.Event()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        told.set()

    with slow_spark(say):
        pass
    assert said == []
    with slow_spark(say, every_seconds=0.01):
        assert told.wait(30)

    assert "`eventbridge compile`" in said[0]
