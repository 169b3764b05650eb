"""docs/tutorials/operations.md, command by command, on a real Airflow, Spark and receiver."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from demo.config import ROOT
from docs.session import run_page
from end_to_end.running import RunningEnvironment

pytestmark = pytest.mark.timeout(600)

PAGE = ROOT / "docs" / "tutorials" / "operations.md"


def test_a_day_of_operations_runs_as_documented(day: RunningEnvironment, tmp_path: Path) -> None:
    """Every command prints what the page shows: an arrival, a dead target, pause, fix, redrive, a wrong rule, a
    replay.
    """
    began = f"```sh\ncd '{ROOT}'\nsource '{day.config.folder}/settings.sh'\n```\n"
    walk = PAGE.read_text().replace("```console elsewhere\n", "```console\n")

    wrong = run_page(began + walk, tmp_path)

    assert wrong == [], "\n\n".join(wrong)
    lines = map(json.loads, day.config.received.read_text().splitlines())
    responses = Counter(line["status"] for line in lines if line["path"] == "/scripted/crew")
    assert responses == {503: 4, 200: 6}
