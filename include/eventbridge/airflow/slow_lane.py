"""Lowers the CPU priority of tasks for retries, redrives and old work, below new deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbridge.niceness import NICENESS, OLD_NICENESS, give_way_once

if TYPE_CHECKING:
    from airflow.sdk import Context


def give_way(_: Context) -> None:
    """Lower the priority of this task's process until it ends; a `pre_execute` of Airflow."""
    give_way_once(NICENESS)


def give_way_as_old(_: Context) -> None:
    """Lower the priority of this task's process to that of old work, until it ends; a `pre_execute` of Airflow."""
    give_way_once(OLD_NICENESS)
