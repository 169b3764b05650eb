"""How a task stops when Airflow kills it: in less time than Airflow gives it."""

from __future__ import annotations

from typing import Final

from eventbridge.stages.runtime.stop import Stop

#: Airflow sends SIGKILL 5 s after SIGTERM, whatever `killed_task_cleanup_time` says, which its Task SDK does not read.
#: What is left of them is for the record.
_LISTENS_SECONDS: Final = 2.5


def task_stop() -> Stop:
    """Return the stop of a task that sends: responses to what is in flight are awaited for 2.5 s."""
    return Stop(_LISTENS_SECONDS)
