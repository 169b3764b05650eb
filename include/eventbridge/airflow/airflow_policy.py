"""Implements the entry point `airflow.policy`, which every Airflow process imports before anything else of EventBridge.

It sets the pools and weights of pushes. It also imports the modules that tasks and DAG files use, before Airflow forks
their processes.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow import settings
from airflow.policies import hookimpl

from eventbridge.airflow.policy import place_push
from eventbridge.airflow.preload import preload

# Airflow clears this flag only for a policy in `airflow_local_settings`. While the flag is set, Airflow discards what
# other policies set on unmapped tasks.
settings.task_instance_mutation_hook.is_noop = False  # type: ignore[attr-defined]


@hookimpl(tryfirst=True)  # before the user's own policy, so that the user's policy wins
def task_instance_mutation_hook(task_instance: Any, dag_run: Any) -> None:
    """Give a mapped push the pool and the weight of its chunk."""
    place_push(task_instance, dag_run)


preload(sys.argv[1:])
