"""The DAGs, one module each. Module `x` has the function `x`, which defines the DAG `eventbridge_x`.

The exception is `deliver_events`, which defines a DAG for each runner. In a checkout, `dags/eventbridge_x.py` calls the
function. Elsewhere one file in the DAGs folder calls `airflow_dags`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from airflow.sdk import DAG, get_parsing_context

from eventbridge.airflow.names import PREFIX, deliver_dag_id
from eventbridge.airflow.schedule import runners_to_parse, slot_warning

#: The module whose function defines a DAG for each runner.
_PER_RUNNER = "deliver_events"


def airflow_dags() -> dict[str, DAG]:
    """Return the DAGs by id: one for each runner, and those that every installation has.

    In a task's process only the task's DAG is returned, because every task parses its DAG file again.
    """
    only = get_parsing_context().dag_id
    names = [found.name for found in iter_modules(__path__) if found.name != _PER_RUNNER]
    shared = {dag_id: _dag_function(name)() for name in names if only in (None, dag_id := f"{PREFIX}{name}")}
    runners = runners_to_parse()
    warning = slot_warning(runners)
    per_runner = {
        deliver_dag_id(runner): _dag_function(_PER_RUNNER)(runner, task_seconds, warning)
        for runner, task_seconds in runners.items()
    }
    return shared | per_runner


def _dag_function(name: str) -> Callable[..., DAG]:
    function: Callable[..., DAG] = getattr(import_module(f"{__name__}.{name}"), name)
    return function
