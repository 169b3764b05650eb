from __future__ import annotations

from eventbridge.policy.streaming import short_of_slots


def test_streaming_tasks_that_take_every_slot_are_reported() -> None:
    """Streaming tasks that take every slot are reported; one free slot is enough for no report."""
    assert short_of_slots(3, 4) is None
    assert short_of_slots(4, 4) == (
        "4 runners are in streaming mode, and core.parallelism of Airflow is 4: "
        "the streaming tasks leave no slot for a standby or any other task, such as that of a retry batch. "
        "Set it to 8 or more, or leave runners in batch mode"
    )
    assert "1 runner is in streaming mode" in str(short_of_slots(1, 1))


def test_without_a_limit_or_a_streaming_task_nothing_is_said() -> None:
    """Nothing is reported without a limit, which Airflow writes as 0, or without a streaming task."""
    assert short_of_slots(1_000, 0) is None
    assert short_of_slots(0, 8) is None
