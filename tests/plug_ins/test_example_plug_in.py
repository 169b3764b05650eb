"""The plug-in of examples/plugin, installed from its wheel: its own tests, and every command that knows types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from installed_package import install_sources

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
RULES = """
buses:
  orders: {source: {type: folder, folder: incoming}}
rules:
  all:
    bus: orders
    pattern: {}
    targets:
      table: {type: sqlite, database: orders.sqlite, table: orders, transform: {form: redact, value: {names: [email]}}}
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the package is installed."""
    folder = tmp_path_factory.mktemp("site")
    install_sources(EXAMPLE, folder)
    return folder


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Run:
    """Return a function that runs `python -m` with the package installed, in a folder with its rules."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rules.yaml").write_text(RULES)

    def run_module(*arguments: str | Path, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        environ: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(site), "EVENTBRIDGE_RULES_FOLDER": "rules"}
        command = [sys.executable, "-m", *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env={**environ, **variables}, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run_module


def test_the_tests_of_the_package_pass(run: Run, tmp_path: Path) -> None:
    """They use nothing but `eventbridge.testing`, and deliver from its source by its transform to its target."""
    (tmp_path / "tests").mkdir()
    for file in (EXAMPLE / "tests").glob("*.py"):
        (tmp_path / "tests" / file.name).write_text(file.read_text())

    assert "2 passed" in run("pytest", "-q", "-p", "no:cacheprovider", "tests").stdout


def test_its_types_are_listed_with_their_settings(run: Run) -> None:
    """`plugins list` names the package and its version, `plugins show` the settings as the models describe them."""
    listed = json.loads(run("eventbridge.cli", "plugins", "list", "-o", "json").stdout)
    own = [(each["kind"], each["type"], each["version"]) for each in listed if each["package"] == "acme-eventbridge"]
    (shown,) = json.loads(run("eventbridge.cli", "plugins", "show", "sqlite", "-o", "json").stdout)

    assert own == [("source", "folder", "1.0"), ("target", "sqlite", "1.0"), ("transform", "redact", "1.0")]
    assert list(shown["settings"]) == ["database", "table", "max_size"]
    assert shown["settings"]["table"]["pattern"] == "^[a-z_]+$"
    assert shown["required"] == ["database", "table"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            ("table: orders", "table: Orders"),
            "9:61: $.rules.all.targets.table.table: table: string should match pattern",
        ),
        (("max", "max"), ""),
        (("database: orders.sqlite, ", ""), "9:7: $.rules.all.targets.table: a target needs the field database"),
        (("names: [email]", "names: [email, 5]"), "9:118: $.rules.all.targets.table.transform.value.names[1]: input"),
        (("names: [email]", "name: x"), "$.rules.all.targets.table.transform.value.names: field required"),
        (("form: redact", "form: redacted"), "there is no form 'redacted'. Did you mean redact?"),
        (("folder: incoming", "folder: 5"), "3:43: $.buses.orders.source.folder: folder: input should be a valid str"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_line(run: Run, tmp_path: Path, wrong: tuple[str, str], said: str) -> None:
    """As for a built-in type: line, column, path, and what the model expects."""
    (tmp_path / "rules" / "rules.yaml").write_text(RULES.replace(*wrong))
    done = run("eventbridge.cli", "rules", "check", code=2 if said else 0)

    assert said in done.stdout + done.stderr


def test_the_json_schema_knows_its_settings(run: Run) -> None:
    """An editor accepts the right rules, and marks a wrong setting of each type."""
    validator = jsonschema.Draft7Validator(json.loads(run("eventbridge.cli", "rules", "schema").stdout))

    def wrong(*change: str) -> list[str]:
        document: Any = yaml.safe_load(RULES.replace(*change) if change else RULES)
        return [error.json_path for error in validator.iter_errors(document)]

    assert wrong() == []
    assert wrong("table: orders", "table: Orders") == ["$.rules.all.targets.table.table"]
    assert wrong("folder: incoming", "folder: 5") == ["$.buses.orders.source.folder"]
    assert wrong("names: [email]", "names: email") == ["$.rules.all.targets.table.transform.value.names"]


def test_a_target_is_checked_without_sending(run: Run) -> None:
    """`targets check` opens it; a database that cannot be opened is the reason, with the package."""
    assert run("eventbridge.cli", "targets", "check", "all/table").stdout == "all/table can be reached\n"


def test_rules_in_force_survive_the_removal_of_its_package(run: Run, tmp_path: Path) -> None:
    """`rules check` names the type with its line."""
    done = run("eventbridge.cli", "rules", "check", code=2, PYTHONPATH="")

    assert "9:21: $.rules.all.targets.table.type: unknown type 'sqlite' of a target" in done.stdout + done.stderr
