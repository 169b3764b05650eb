from __future__ import annotations

from eventbridge.policy.streaming import short_of_slots


def test_streaming_tasks_that_take_every_slot_are_reported() -> None:
    """A streaming task holds a slot as long as it lasts; one that is left is enough to say nothing."""
    assert short_of_slots(3, 4) is None
    assert short_of_slots(4, 4) == (
        "4 runners are in streaming mode, and core.parallelism of Airflow is 4: "
        "the streaming tasks leave no slot for a standby or any other task, such as that of a retry batch. "
        "Set it to 8 or more, or leave runners in batch mode"
    )
    assert "1 runner is in streaming mode" in str(short_of_slots(1, 1))


def test_without_a_limit_or_a_streaming_task_nothing_is_said() -> None:
    """0 is Airflow's word for any number."""
    assert short_of_slots(1_000, 0) is None
    assert short_of_slots(0, 8) is None
