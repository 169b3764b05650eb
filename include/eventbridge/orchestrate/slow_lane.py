"""How the tasks of retries, redrives and old work let new deliveries go before them at the processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbridge.niceness import NICENESS, OLD_NICENESS, give_way_once

if TYPE_CHECKING:
    from airflow.sdk import Context


def give_way(_: Context) -> None:
    """Lower the priority of this process, which is a task's own, until it ends; a `pre_execute` of Airflow."""
    give_way_once(NICENESS)


def give_way_as_old(_: Context) -> None:
    """Lower the priority of this process, which is a task's own, as far as old work's, until it ends."""
    give_way_once(OLD_NICENESS)
