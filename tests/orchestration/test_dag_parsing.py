"""The cost and side effects of parsing a DAG file, and how errors in rule files are shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID
from orchestration.dag_files import ALWAYS_PRESENT, DAGS, edges

from eventbridge.airflow.dags import airflow_dags
from eventbridge.errors import RuleFileError
from eventbridge.rules.load import load_rules


@pytest.mark.parametrize("dag_id", ["eventbridge_deliver_night", "eventbridge_retry_deliveries", "foreign_dag"])
def test_a_task_defines_only_its_own_dag(home: Path, dag_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process of a task, only the task's DAG is defined."""
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, dag_id)

    assert set(airflow_dags()) == {dag_id} - {"foreign_dag"}


def test_the_shape_does_not_depend_on_the_number_of_rules(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred more rules of a runner do not change the DAGs."""
    before = {dag_id: edges(dag) for dag_id, dag in DagBag(DAGS).dags.items()}
    rule = "  r{n}: {{bus: orders, pattern: {{}}, targets: {{log: {{type: file, path: /tmp/never.jsonl}}}}}}\n"
    more = "rules:\n" + "".join(rule.format(n=n) for n in range(100))
    (Path(os.environ["EVENTBRIDGE_RULES_FOLDER"]) / "more.yaml").write_text(more)

    assert before == {dag_id: edges(dag) for dag_id, dag in DagBag(DAGS).dags.items()}


def test_errors_in_rule_files_are_an_import_error_in_airflow(home: Path) -> None:
    """The UI shows every error with file, line and column, like `eventbridge rules check`."""
    folder = Path(os.environ["EVENTBRIDGE_RULES_FOLDER"])
    (folder / "wrong.yaml").write_text("rules:\n  a: {bus: nowhere, patern: {}}\n  b: 7\n")
    with pytest.raises(RuleFileError) as errors:
        load_rules(folder)
    bag = DagBag(DAGS)

    assert len(errors.value.errors) > 1
    (shown,) = bag.import_errors.values()
    assert str(errors.value) in shown
    assert set(bag.dags) == ALWAYS_PRESENT


# Parses DAG files, each in a fork as Airflow does and with its own home, and prints what each opened, connected to and
# imported. It first loads what Airflow's processes have loaded by then: croniter, for one, runs `file` at its import.
_WATCHED_PARSES = """
import json, os, runpy, sys, time
import airflow.sdk, airflow.sdk.definitions.asset, airflow.triggers.base, pydantic, croniter
def parsed(path):
    if sys.argv[1] != "-":
        from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as within
        within(sys.argv[1], "push").__enter__()
    os.environ["EVENTBRIDGE_HOME"] += "/of-" + os.path.basename(path)
    events = []
    watched = ("open", "socket.connect", "subprocess.Popen", "sqlite3.connect", "os.mkdir", "os.rename", "os.remove")
    sys.addaudithook(lambda name, args: events.append((name, str(args[0]))) if name in watched else None)
    began = time.process_time()
    found = runpy.run_path(path)
    seconds = time.process_time() - began
    dags = sorted({v.dag_id for v in found.values() if type(v).__name__ == "DAG"} |
                  {v.operator.dag.dag_id for v in found.values() if type(v).__name__ == "PlainXComArg"})
    return {"events": events, "seconds": seconds, "modules": sorted(sys.modules), "dags": dags}
for path in sys.argv[2:]:
    if not os.fork():
        print("@@" + json.dumps(parsed(path)), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, path
"""


def watched_parses(*files: str, task_of: str = "-") -> list[dict[str, Any]]:
    """Parse DAG files, each in its own process; with `task_of`, as a task of that DAG does."""
    command = [sys.executable, "-c", _WATCHED_PARSES, task_of, *(str(DAGS / file) for file in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("@@")]


def touched(found: dict[str, Any]) -> list[list[str]]:
    """Return what a parse accessed besides source code."""
    code = (".py", ".pyc", ".so")
    return [[name, what] for name, what in found["events"] if name != "open" or not what.endswith(code)]


#: The DAG file that reads the watcher's last poll from the ledger.
_ASKS_THE_LEDGER = "eventbridge_start_waiting_runs.py"


def test_parsing_reads_only_the_rule_files(home: Path) -> None:
    """Parsing is fast, and opens no connection, process, database or file except rule files and the rule cache; no
    heavy import.
    """
    files = ["eventbridge_deliver_events.py", *(f"{dag}.py" for dag in sorted(ALWAYS_PRESENT))]
    parses = dict(zip(files, watched_parses(*files), strict=True))
    rules = os.environ["EVENTBRIDGE_RULES_FOLDER"]
    heavy = {
        "pyspark",
        "pyarrow",
        "pycurl",
        "alembic",
        "great_expectations",
        "pandas",
        "eventbridge.delivery.push",
    }

    for file, found in parses.items():
        cache = str(home / f"of-{file}" / "rule_cache")
        ledger = set() if file == _ASKS_THE_LEDGER else {"eventbridge.ledger.ledger"}
        assert [each for each in touched(found) if not each[1].startswith((rules, cache))] == [], file
        assert not (heavy | ledger) & set(found["modules"]), file
        assert found["seconds"] < 3.0, file  # 0.1 on a quiet machine; every task pays it


def test_parsing_a_users_dag_reads_nothing(home: Path) -> None:
    """The watcher, sensors and operators of examples/dags open no file, ledger or bus, and import nothing heavy."""
    examples = sorted((DAGS.parent / "examples" / "dags").glob("*.py"))
    heavy = {"pyspark", "pyarrow", "numpy", "numba", "alembic", "duckdb", "eventbridge.ledger.ledger"}

    for example, found in zip(examples, watched_parses(*map(str, examples)), strict=True):
        assert touched(found) == [], example
        assert not heavy & set(found["modules"]), example


def test_a_task_parses_its_own_dag_without_the_rule_files(home: Path) -> None:
    """If rule files are broken, the tasks of a batch in progress continue."""
    (Path(os.environ["EVENTBRIDGE_RULES_FOLDER"]) / "wrong.yaml").write_text("rules: [")
    (found,) = watched_parses("eventbridge_deliver_events.py", task_of="eventbridge_deliver_night")

    assert touched(found) == []
    assert found["dags"] == ["eventbridge_deliver_night"]
