"""Lowers the CPU priority of tasks for retries, redrives and old work, below new deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbridge.processes import NICENESS, OLD_NICENESS, lower_priority_once

if TYPE_CHECKING:
    from airflow.sdk import Context


def give_way(_: Context) -> None:
    """Lower the priority of this task's process until it ends; a `pre_execute` of Airflow."""
    lower_priority_once(NICENESS)


def give_way_as_old(_: Context) -> None:
    """Lower the priority of this task's process to that of old work, until it ends; a `pre_execute` of Airflow."""
    lower_priority_once(OLD_NICENESS)
