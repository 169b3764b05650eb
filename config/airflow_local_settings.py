"""Airflow's policy for a checkout that is on the path and not installed; an installed package registers it itself."""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.policy", name="eventbridge"):
    from eventbridge.airflow.airflow_policy import task_instance_mutation_hook

    __all__ = ["task_instance_mutation_hook"]
