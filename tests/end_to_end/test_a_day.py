"""The tutorials in Airflow, command by command, on a real Airflow, Spark and receiver."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from demo.config import ROOT
from docs.session import run_page
from end_to_end.running import RunningEnvironment

pytestmark = pytest.mark.timeout(600)

TUTORIALS = ROOT / "docs" / "tutorials"


def test_a_day_of_operations_runs_as_documented(day: RunningEnvironment, tmp_path: Path) -> None:
    """Every command prints what the page shows: an arrival, a dead target, pause, fix, redrive, a wrong rule, a
    replay.
    """
    wrong = run_tutorial("operations.md", day, tmp_path, ROOT)

    assert wrong == [], "\n\n".join(wrong)
    lines = map(json.loads, day.config.received.read_text().splitlines())
    responses = Counter(line["status"] for line in lines if line["path"] == "/scripted/crew")
    assert responses == {503: 4, 200: 6}


def test_the_first_rule_in_airflow_runs_as_documented(day: RunningEnvironment, tmp_path: Path) -> None:
    """A rule file on a new bus becomes a DAG, whose run delivers one event; `why` says what the other did not meet."""
    wrong = run_tutorial("first-rule-in-airflow.md", day, tmp_path, tmp_path)

    assert wrong == [], "\n\n".join(wrong)


def run_tutorial(name: str, day: RunningEnvironment, tmp_path: Path, folder: Path) -> list[str]:
    """Run a tutorial's commands in a folder, with the settings of the environment, and return what differs."""
    began = f"```sh\ncd '{folder}'\nsource '{day.config.folder}/settings.sh'\n```\n"
    walk = (TUTORIALS / name).read_text().replace("```console elsewhere\n", "```console\n")
    return run_page(began + walk, tmp_path)
