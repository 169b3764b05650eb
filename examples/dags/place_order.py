"""Publishes an order, waits until every rule has delivered it, then until the shop confirms it."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from eventbridge.airflow import PublishEventsOperator, WaitForDeliverySensor, WaitForEventSensor

with DAG("place_order", schedule=None, default_args={"retries": 2, "retry_delay": timedelta(seconds=5)}):
    order = {"specversion": "1.0", "source": "/shop", "type": "order.placed", "subject": "{{ run_id }}"}
    publish = PublishEventsOperator(task_id="publish", bus="orders", events=[order])
    delivered = WaitForDeliverySensor(task_id="delivered", published_by="publish", timeout=timedelta(minutes=10))
    confirmed = WaitForEventSensor(
        task_id="confirmed",
        bus="orders",
        pattern={"type": ["order.confirmed"], "subject": ["{{ run_id }}"]},
        timeout=timedelta(hours=1),
    )
    publish >> delivered >> confirmed
