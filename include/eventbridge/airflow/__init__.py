"""Runs EventBridge in Airflow: the DAGs, their tasks, the pools and the watcher.

They are a thin layer over other packages, such as `pipeline`. Users' DAGs import what is in `__all__` from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventbridge.airflow.event_watcher import EventBridgeWatcher as EventBridgeWatcher
    from eventbridge.airflow.publish import PublishEventsOperator as PublishEventsOperator
    from eventbridge.airflow.replay import ReplayOperator as ReplayOperator
    from eventbridge.airflow.sensors import WaitForDeliverySensor as WaitForDeliverySensor
    from eventbridge.airflow.sensors import WaitForEventSensor as WaitForEventSensor

__all__ = [
    "EventBridgeWatcher",
    "PublishEventsOperator",
    "ReplayOperator",
    "WaitForDeliverySensor",
    "WaitForEventSensor",
]

#: The module of each name, which is imported when the name is used: the plug-in and the policy need none of them.
_MODULES = {
    "EventBridgeWatcher": "event_watcher",
    "PublishEventsOperator": "publish",
    "ReplayOperator": "replay",
    "WaitForDeliverySensor": "sensors",
    "WaitForEventSensor": "sensors",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
