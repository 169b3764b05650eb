"""How a task stops when Airflow kills it: before Airflow's SIGKILL."""

from __future__ import annotations

from typing import Final

from eventbridge.runtime.stop import Stop

#: Airflow sends SIGKILL 5 s after SIGTERM: its Task SDK does not read `killed_task_cleanup_time`. The rest of the 5 s
#: is for recording the responses.
_LISTENS_SECONDS: Final = 2.5


def task_stop() -> Stop:
    """Return the stop of a task that sends: after it is set, responses to requests in flight are awaited for 2.5 s."""
    return Stop(_LISTENS_SECONDS)
