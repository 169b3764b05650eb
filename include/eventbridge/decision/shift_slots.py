"""Whether shifts can take all that a scheduler's executor runs at a time. Pure."""

from __future__ import annotations


def short_of_slots(express_runners: int, slots: int) -> str | None:
    """Return what to say where nothing would be left beside a shift of each runner; None: enough is.

    `slots`: tasks that run at a time, 0: any number.
    """
    if not 0 < slots <= express_runners:
        return None
    runners = "runner has" if express_runners == 1 else "runners have"
    return (
        f"{express_runners} {runners} the mode express, and core.parallelism of Airflow is {slots}: "
        "with a shift of each nobody can stand by for the next one, and nothing else runs, the retries neither. "
        f"Set it to {2 * express_runners} or more, or leave some of them staged"
    )
