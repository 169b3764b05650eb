"""Airflow's plug-in for a checkout that is on the path and not installed; an installed package registers it itself."""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="eventbridge"):
    from eventbridge.airflow.plugin import EventBridgePlugin

    __all__ = ["EventBridgePlugin"]
