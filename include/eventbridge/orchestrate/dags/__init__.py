"""The DAGs, a module each: module `x` has the function `x`, which makes the DAG `eventbridge_x`.

`dags/eventbridge_x.py` of a checkout calls that function; elsewhere one file in the DAGs folder calls `airflow_dags`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from airflow.sdk import DAG, get_parsing_context

from eventbridge.orchestrate.names import PREFIX, deliver_dag_id
from eventbridge.orchestrate.schedule import runners_to_parse, warning_of_slots

#: The one module whose function makes a DAG for each runner.
_OF_RUNNERS = "deliver_events"


def airflow_dags() -> dict[str, DAG]:
    """Return the DAGs by id: those of the runners, and those that every installation has.

    In a task's process only the DAG that the task belongs to is made: every task parses its DAG file again.
    """
    only = get_parsing_context().dag_id
    names = [found.name for found in iter_modules(__path__) if found.name != _OF_RUNNERS]
    made = {dag_id: _maker(name)() for name in names if only in (None, dag_id := f"{PREFIX}{name}")}
    runners = runners_to_parse()
    warning = warning_of_slots(runners)
    of_runners = {
        deliver_dag_id(runner): _maker(_OF_RUNNERS)(runner, task_seconds, warning)
        for runner, task_seconds in runners.items()
    }
    return made | of_runners


def _maker(name: str) -> Callable[..., DAG]:
    maker: Callable[..., DAG] = getattr(import_module(f"{__name__}.{name}"), name)
    return maker
