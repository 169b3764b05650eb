"""Which of Airflow's executors can use a ledger: a file can only be used on one host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from eventbridge.airflow.settings import refuse_executors
from eventbridge.errors import SettingsError

DAGS = Path(__file__).parents[2] / "dags"
PAGE = DAGS.parent / "docs" / "howto" / "scale.md"
FILE = "sqlite:////var/lib/eventbridge/ledger.sqlite"


@pytest.mark.parametrize(
    "configured",
    [
        "LocalExecutor",
        "SequentialExecutor",
        "airflow.executors.local_executor.LocalExecutor",
        "here:airflow.executors.local_executor.LocalExecutor",
        "LocalExecutor;team1=LocalExecutor",
    ],
)
def test_executors_of_one_host_accept_a_ledger_in_a_file(configured: str) -> None:
    """Executors are given by name, import path or alias, also for a team."""
    refuse_executors(configured, FILE)


@pytest.mark.parametrize(
    ("configured", "executor"),
    [
        ("CeleryExecutor", "CeleryExecutor"),
        ("LocalExecutor, KubernetesExecutor", "KubernetesExecutor"),
        ("airflow.providers.celery.executors.celery_executor.CeleryExecutor", "CeleryExecutor"),
        ("far:airflow.providers.edge3.executors.EdgeExecutor", "EdgeExecutor"),
        ("LocalExecutor;team1=CeleryExecutor", "CeleryExecutor"),
    ],
)
def test_executors_of_several_hosts_refuse_a_ledger_in_a_file(configured: str, executor: str) -> None:
    """The error names the executor, the ledger, and the settings to change."""
    remedies = r"EVENTBRIDGE_LEDGER_URL.*postgresql://.*AIRFLOW__CORE__EXECUTOR\) to LocalExecutor"
    with pytest.raises(SettingsError, match=rf"with {executor}, which.*{FILE}.*{remedies}"):
        refuse_executors(configured, FILE)


def test_the_ui_shows_a_refused_executor(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the import error of every DAG file, before any run."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    bag = DagBag(DAGS)

    assert bag.dags == {}
    assert {Path(file).name for file in bag.import_errors} == {file.name for file in DAGS.glob("*.py")}
    assert all("Airflow runs tasks with CeleryExecutor" in shown for shown in bag.import_errors.values())


def test_the_policy_of_the_page_sends_every_task_to_celery(dags: dict[str, DAG]) -> None:
    """The policy of docs/howto/scale.md, for Airflows with Kubernetes, also applies to pushes, which are mapped."""
    (policy,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    named: dict[str, Any] = {}
    exec(policy, named)  # as Airflow imports it

    tasks: list[Any] = [task for dag in dags.values() for task in dag.tasks]
    for task in tasks:
        named["task_policy"](task)

    assert {(task.executor, task.queue) for task in tasks} == {("CeleryExecutor", "eventbridge")}
