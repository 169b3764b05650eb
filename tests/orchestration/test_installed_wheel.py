"""The wheel in a separate Airflow, without the checkout: entry points, configuration, connection types, DAGs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from orchestration.conftest import RULES
from orchestration.fresh_venv import ROOT, FreshVenv, build_wheel, install_wheel

#: Imports all modules and entry points, and prints the loaded files.
_LOAD_ALL = """
import json, pkgutil, sys
import airflow.settings
import eventbridge
for found in pkgutil.walk_packages(eventbridge.__path__, "eventbridge."):
    if not found.name.startswith(("eventbridge.testing", "eventbridge.cli.__main__", "eventbridge.ledger.migrations")):
        __import__(found.name)
plugins = airflow.settings.get_policy_plugin_manager().list_name_plugin()
print(json.dumps({
    "path": sys.path,
    "files": [each.__file__ for each in list(sys.modules.values()) if getattr(each, "__file__", None)],
    "policies": [name for name, _ in plugins],
    "is_noop": airflow.settings.task_instance_mutation_hook.is_noop,
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> FreshVenv:
    """Install the wheel, write a rule file, and run `eventbridge init-airflow`."""
    made = install_wheel(tmp_path_factory.mktemp("fresh"), wheel)
    (made.workdir / "rules").mkdir()
    (made.workdir / "rules" / "orders.yaml").write_text(RULES)
    made.run("eventbridge", "init-airflow", "--create")
    return made


def listed(printed: str) -> Any:
    """Return the JSON that an `airflow` command prints after its warnings."""
    return json.loads(printed.splitlines()[-1])


def test_the_wheel_has_every_module_and_the_migrations(wheel: Path) -> None:
    """It contains everything below include/eventbridge, and nothing else of the checkout."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = ROOT / "include"

    package = source / "eventbridge"
    shown = [*package.rglob("*.html"), *package.rglob("*.css"), *package.rglob("*.js")]
    shown.append(package / "api" / "examples.json")
    assert names == {str(file.relative_to(source)) for file in [*package.rglob("*.py"), *shown]}
    assert "eventbridge/api/page/templates/frame.html" in names
    assert "eventbridge/ledger/migrations/versions/r0001_ledger.py" in names


def test_nothing_comes_from_the_checkout(venv: FreshVenv) -> None:
    """Every module is imported from the new environment, and the policy is registered."""
    found = json.loads(venv.run("python", "-c", _LOAD_ALL).splitlines()[-1])
    ours = [file for file in found["files"] if "/eventbridge/" in file]

    assert len(ours) > 300
    assert [file for file in ours if not Path(file).is_relative_to(venv.folder)] == []
    assert [each for each in found["path"] if Path(each).is_relative_to(ROOT)] == []
    assert found["policies"].count("eventbridge") == 1
    assert found["is_noop"] is False


def test_airflow_lists_provider_and_plugin(venv: FreshVenv) -> None:
    """`airflow providers list` and `airflow plugins` list the package once, with its version."""
    providers, plugins = map(listed, venv.airflow("providers list -o json", "plugins -o json"))
    (provider,) = [each for each in providers if each["package_name"] == "eventbridge-airflow"]
    (plugin,) = [each for each in plugins if each["name"] == "eventbridge"]

    assert provider["version"] in plugin["source"]
    assert plugin["external_views"][0]["href"] == "dags?tags=eventbridge"


def test_airflow_has_a_section_for_the_settings(venv: FreshVenv) -> None:
    """`airflow config` returns a variable's value, and the defaults of the other settings."""
    section, value = venv.airflow(
        "config list --section eventbridge --show-values", "config get-value eventbridge batch_max_events"
    )

    assert f"rules_folder = {venv.workdir / 'rules'}" in section
    assert "push_timeout = 20" in section
    assert value.splitlines()[-1] == "1000000"


def test_airflow_makes_the_dags_of_the_rule_files(venv: FreshVenv) -> None:
    """After `init-airflow`, Airflow lists every DAG and no import error."""
    commands = ("db migrate", "dags reserialize", "dags list -o json", "dags list-import-errors -o json")
    *_, dags, errors = venv.airflow(*commands)
    names = {each["dag_id"] for each in listed(dags)}

    assert {
        "eventbridge_deliver_orders",
        "eventbridge_deliver_night",
        "eventbridge_retry_deliveries",
        "eventbridge_publish_events",
        "eventbridge_replay_events",
    } <= names
    assert listed(errors) == []


def test_events_are_published_without_airflow(venv: FreshVenv) -> None:
    """The command line creates its ledger by the wheel's migrations, and reads its URL from a file."""
    (venv.workdir / "url").write_text(f"sqlite:///{venv.workdir}/mine.sqlite\n")
    (venv.workdir / "one.jsonl").write_text(
        '{"specversion": "1.0", "id": "1", "source": "/s", "type": "order.placed"}\n'
    )
    variables = {
        "EVENTBRIDGE_HOME": str(venv.workdir / "cli"),
        "EVENTBRIDGE_RULES_FOLDER": str(venv.workdir / "rules"),
        "EVENTBRIDGE_LEDGER_URL_FILE": str(venv.workdir / "url"),
    }
    printed = venv.run("eventbridge", "events", "publish", "orders", "one.jsonl", **variables)

    assert printed == "1 event published to orders/events. The next batch of each runner takes it.\n"
    assert "orders" in venv.run("eventbridge", "status", **variables)
    assert (venv.workdir / "mine.sqlite").is_file()
