"""Runs when large orders are placed. A run may have several asset events, each with its order."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, AssetWatcher, dag, task

from eventbridge.airflow import EventBridgeWatcher

LARGE = {"type": ["order.placed"], "data": {"amount": [{"numeric": [">=", 10_000]}]}}

WATCHER = AssetWatcher(name="orders", trigger=EventBridgeWatcher("orders", LARGE))
LARGE_ORDERS = Asset("large_orders", watchers=[WATCHER])


@dag(schedule=[LARGE_ORDERS])
def on_large_orders() -> None:
    """Review large orders."""

    @task
    def review(triggering_asset_events: Any = None) -> list[str]:
        asset_events = triggering_asset_events[LARGE_ORDERS]
        orders = [order for each in asset_events for order in each.extra["payload"]["events"]]
        return [f"{order['id']}: {order['data']['amount']}" for order in orders]

    review()


on_large_orders()
