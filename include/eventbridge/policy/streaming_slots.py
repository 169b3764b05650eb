"""Decides whether streaming tasks can occupy all task slots of an executor. Pure."""

from __future__ import annotations


def short_of_slots(streaming_runners: int, slots: int) -> str | None:
    """Return a warning if streaming tasks of all runners would leave no slot; None: enough slots are left.

    `slots`: the tasks that run at a time, 0: any number.
    """
    if not 0 < slots <= streaming_runners:
        return None
    runners = "runner is in" if streaming_runners == 1 else "runners are in"
    return (
        f"{streaming_runners} {runners} streaming mode, and core.parallelism of Airflow is {slots}: "
        "with a streaming task of each there can be no standby, and nothing else runs, the retries neither. "
        f"Set it to {2 * streaming_runners} or more, or leave some of them in batch mode"
    )
