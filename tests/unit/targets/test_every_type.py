"""Each built-in type of target has a guide and a check, and may be a dead letter queue."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rules.load import load_rules
from eventbridge.rules.model import queue_of
from eventbridge.rules.types import TARGET_TYPES

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
#: The least fields of each type, and the page with an example that a test runs. A type without a line fails.
TYPES = {
    "http": ("url: https://crm.example/events", "tutorials/first-rule.md"),
    "file": ("path: crm.jsonl", "tutorials/first-rule.md"),
    "kafka": ("connection: there, topic: crm", "howto/connect-kafka.md"),
    "rocketmq": ("connection: there, topic: crm", "howto/connect-rocketmq.md"),
    "s3": ("connection: there, bucket: crm", "howto/connect-s3.md"),
    "airflow": ("connection: there, dag_id: crm", "howto/connect-airflow.md"),
    "sql": ("connection: there, table: crm", "howto/connect-sql.md"),
    "delta": ("connection: there, table: 's3://lake/crm'", "howto/connect-delta.md"),
    "iceberg": ("connection: there, table: shop.crm", "howto/connect-iceberg.md"),
    "queue": ("queue: crm", "howto/pull-queue.md"),
}


@pytest.mark.parametrize("name", TARGET_TYPES.built_in)
def test_a_type_has_a_guide_with_an_example(name: str) -> None:
    """The reference of targets has its section, and the page an example of the type."""
    _, page = TYPES[name]

    assert f"\n## {name}\n" in (DOCS / "reference" / "targets.md").read_text()
    assert f"type: {name}" in (DOCS / page).read_text()


@pytest.mark.parametrize("name", TARGET_TYPES.built_in)
def test_a_type_can_be_checked(name: str) -> None:
    """All of its targets have a check, which `eventbridge targets check` asks."""
    package = import_module(f"eventbridge.targets.{name}")
    modules = [import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)]
    found = [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__ and hasattr(each, "deliver")
    ]

    assert found
    assert [each for each in found if not hasattr(each, "check")] == []


@pytest.mark.parametrize("name", TARGET_TYPES.built_in)
def test_a_type_may_be_a_dead_letter_queue(name: str, tmp_path: Path) -> None:
    """With the same fields as the target of a rule; another one is refused with its line."""
    fields, _ = TYPES[name]
    rules = tmp_path / "r.yaml"
    head = (
        "buses: {b: {source: {type: embedded}}}\nrules: {r: {bus: b, pattern: {}, targets: {t: {type: queue, queue: q, "
    )
    queue = f"type: {name}, {fields}"
    rules.write_text(f"{head}\n  dead_letter_queue: {{{queue}}}}}}}}}}}\n")
    assert load_rules(tmp_path).rules["r"].destinations[queue_of("t")].type == name

    rules.write_text(f"{head}\n  dead_letter_queue: {{{queue}, nonsense: 1}}}}}}}}}}\n")
    with pytest.raises(RuleFileError, match=r"r\.yaml:3.*nonsense"):
        load_rules(tmp_path)
