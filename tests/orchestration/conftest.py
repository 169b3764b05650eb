"""Fixtures for tests that import Airflow. They set a separate home before Airflow is imported."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.sdk import DAG

# Airflow reads these once, at its first import, and writes its configuration below its home.
_HOME = Path(tempfile.mkdtemp(prefix="eventbridge-airflow-"))
os.environ["AIRFLOW_HOME"] = str(_HOME)
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(_HOME / "plugins")
os.environ["AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"] = "False"

RULES = """
buses:
  orders:
    source: {type: embedded, start_at: earliest}
rules:
  big:
    bus: orders
    pattern: {type: [order.placed]}
    concurrency: 3
    targets:
      log: {type: file, path: /tmp/never-written.jsonl}
  nightly:
    bus: orders
    runner: night
    pattern: {type: [order.archived]}
    pool: movement
    targets:
      log: {type: file, path: /tmp/never-written.jsonl}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set EventBridge's home and a rule file with two runners of one bus; returns the home."""
    from eventbridge.airflow import policy

    policy._placements.cache_clear()  # it would read the ledger of the test before
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "orders.yaml").write_text(RULES)
    monkeypatch.setenv("EVENTBRIDGE_RULES_FOLDER", str(rules))
    monkeypatch.setenv("EVENTBRIDGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def dags(home: Path) -> dict[str, DAG]:
    """Return the DAGs by id, from Airflow's own parser."""
    from airflow.dag_processing.dagbag import DagBag
    from orchestration.dag_files import DAGS

    bag = DagBag(DAGS)

    assert bag.import_errors == {}
    return bag.dags
