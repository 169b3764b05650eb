"""How redrives and replays are named that a server recorded which has no Airflow to deliver them."""

from __future__ import annotations

from typing import Final

#: What their `run` begins with: nobody has triggered a DAG for them, so the watcher has it done.
RECORDED: Final = "recorded, "
