"""Names of redrives and replays that a server without Airflow recorded."""

from __future__ import annotations

from typing import Final

#: The prefix of their `run`: no DAG was triggered for them, so the watcher starts it.
RECORDED: Final = "recorded, "
