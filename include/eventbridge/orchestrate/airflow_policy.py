"""The package's entry point `airflow.policy`: every Airflow process imports it, first of all and in full.

It has two jobs: pools and weights of pushes, and what tasks and DAG files import, loaded before they are forked.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow import settings
from airflow.policies import hookimpl

from eventbridge.orchestrate.policy import place_push
from eventbridge.orchestrate.preload import preload

# Airflow looks for policies in `airflow_local_settings` only, and throws away what others set on unmapped tasks.
settings.task_instance_mutation_hook.is_noop = False  # type: ignore[attr-defined]


@hookimpl(tryfirst=True)  # before the user's own policy: the last word is theirs
def task_instance_mutation_hook(task_instance: Any, dag_run: Any) -> None:
    """Give a mapped push the pool and the weight of its chunk."""
    place_push(task_instance, dag_run)


preload(sys.argv[1:])
