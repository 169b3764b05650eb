"""The Airflow plug-in of the package, its entry point `airflow.plugins`; light, as every Airflow process imports it."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin


class EventBridgePlugin(AirflowPlugin):
    """Adds the menu item *Browse > EventBridge*: the list of EventBridge's own DAGs."""

    name = "eventbridge"
    # Without a leading slash: it is below the path that Airflow's `[api] base_url` has.
    external_views: list[Any] = [  # noqa: RUF012
        {"name": "EventBridge", "href": "dags?tags=eventbridge", "destination": "nav", "category": "browse"}
    ]
