"""Delivers the orders of the last two hours to one rule again, and waits for the end."""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow import ReplayOperator

with DAG("replay_orders", schedule=None):
    ReplayOperator(task_id="replay", bus="orders", since="2h", rules=["accounts"], fail_on_dead_letters=True)
