"""The Airflow plug-in of the package, its entry point `airflow.plugins`; light, as every Airflow process imports it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from eventbridge.orchestrate.links import ChunkLink

#: Below it Airflow's api-server responds with what of our HTTP API is mounted there.
URL_PREFIX = "/eventbridge"


class _MountedApps:
    """The list of applications, made when somebody asks for it in the api-server: other processes have none."""

    def __get__(self, instance: object, owner: type[Any]) -> list[dict[str, Any]]:
        """Return one application, or none where the extra `api` is not installed."""
        if "fastapi" not in sys.modules or find_spec("prometheus_client") is None:
            return []
        if not hasattr(self, "_made"):
            self._made = [{"name": "EventBridge", "app": _application(), "url_prefix": URL_PREFIX}]
        return self._made


def _views() -> list[dict[str, Any]]:
    # Without a leading slash: it is below the path that Airflow's `[api] base_url` has.
    dags = {"name": "EventBridge DAGs", "href": "dags?tags=eventbridge", "destination": "nav", "category": "browse"}
    page = {
        "name": "EventBridge",
        "href": f"{URL_PREFIX.lstrip('/')}/page",
        "destination": "nav",
        "url_route": "eventbridge",
        "nav_top_level": True,
    }
    run = {
        "name": "EventBridge batch",
        "href": f"{URL_PREFIX.lstrip('/')}/page/run?dag={{DAG_ID}}&run={{RUN_ID}}",
        "destination": "dag_run",
        "url_route": "eventbridge-batch",
    }
    return [dags, page, run] if find_spec("prometheus_client") is not None else [dags]


def _panels() -> list[dict[str, Any]]:
    panel = {
        "name": "EventBridge lag",
        "bundle_url": f"{URL_PREFIX.lstrip('/')}/page/lag.js",
        "destination": "dashboard",
        "url_route": "eventbridge-lag",
    }
    return [panel] if find_spec("prometheus_client") is not None else []


class EventBridgePlugin(AirflowPlugin):
    """Adds the page *EventBridge*, the menu item *Browse > EventBridge DAGs*, and `/eventbridge/metrics`.

    And from each push a link to its deliveries on the page, on each DAG run a tab with its batch, and a panel on the
    home page.
    """

    name = "eventbridge"
    external_views: list[Any] = _views()
    react_apps: list[Any] = _panels()
    operator_extra_links: list[Any] = [ChunkLink()] if find_spec("prometheus_client") is not None else []
    fastapi_apps = _MountedApps()


def _application() -> Any:
    from eventbridge.api.mounted import create_mounted_app
    from eventbridge.orchestrate.page_gate import AirflowGate

    return create_mounted_app(_open_work, AirflowGate())


def _open_work() -> Any:
    from eventbridge.orchestrate.connections import airflow_connection
    from eventbridge.orchestrate.settings import configured_settings
    from eventbridge.stages.runtime.runtime import Runtime

    return Runtime.open(configured_settings(), airflow_connection)
