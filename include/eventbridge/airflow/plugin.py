"""EventBridge's Airflow plug-in (entry point `airflow.plugins`). It imports little, because every process loads it."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from eventbridge.airflow.push import ChunkLink
from eventbridge.airflow.settings import listener_settings
from eventbridge.errors import SettingsError

log = logging.getLogger(__name__)

#: The path of EventBridge's HTTP API in Airflow's api-server.
URL_PREFIX = "/eventbridge"


class _MountedApps:
    """The list of applications that the api-server mounts, built on first access. It is empty in other processes."""

    def __get__(self, instance: object, owner: type[Any]) -> list[dict[str, Any]]:
        """Return one application, or none outside the api-server or without the `api` extra."""
        if "fastapi" not in sys.modules or find_spec("prometheus_client") is None:
            return []
        if not hasattr(self, "_apps"):
            self._apps = [{"name": "EventBridge", "app": _application(), "url_prefix": URL_PREFIX}]
        return self._apps


def _views() -> list[dict[str, Any]]:
    # There is no leading slash, because the address is relative to the path of Airflow's `[api] base_url`.
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


def _listeners() -> list[Any]:
    try:
        settings = listener_settings()
    except SettingsError as error:
        log.error("Changes in Airflow are not published: %s", error)
        return []
    if settings.airflow_bus is None:
        return []
    from airflow.configuration import conf

    from eventbridge.airflow.listener import open_listener

    return [open_listener(settings, conf.get("api", "base_url", fallback="") or "")]


class EventBridgePlugin(AirflowPlugin):
    """Adds the menu item *Browse > EventBridge DAGs* and, with the `api` extra, the page and the HTTP API.

    With that extra it also adds a link from each push to its deliveries, a tab with the batch of each DAG run, and a
    panel on the home page. With EVENTBRIDGE_AIRFLOW_BUS it publishes changes in Airflow to a bus.
    """

    name = "eventbridge"
    external_views: list[Any] = _views()
    react_apps: list[Any] = _panels()
    operator_extra_links: list[Any] = [ChunkLink()] if find_spec("prometheus_client") is not None else []
    fastapi_apps = _MountedApps()
    listeners: list[Any] = _listeners()


def _application() -> Any:
    from eventbridge.airflow.page_gate import AirflowGate
    from eventbridge.api.app import create_mounted_app

    return create_mounted_app(_open_runtime, AirflowGate())


def _open_runtime() -> Any:
    from eventbridge.airflow.connections import airflow_connection
    from eventbridge.airflow.settings import configured_settings
    from eventbridge.runtime.open import open_runtime

    return open_runtime(configured_settings(), airflow_connection)
