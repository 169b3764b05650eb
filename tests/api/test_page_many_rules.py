"""Lists of rules and targets are paged, and the text of a rule is found in its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import Request

from eventbridge.api.page import values
from eventbridge.api.page.overview import overview_values
from eventbridge.api.page.period import ShownPeriod
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.rules import rule_text

COUNT = 250
RULE = """  rule-{number:03d}:  # of number {number}
    bus: orders
    pattern: {{type: [order.placed]}}

    targets:
      file: {{type: file, path: /tmp/never-written/{number}.jsonl}}
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """An installation with many rules in two files."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "rules" / "below").mkdir(parents=True)
    (folder / "rules" / "a.yaml").write_text("buses: {orders: {source: {type: embedded}}}\n")
    rules = "".join(RULE.format(number=number) for number in range(COUNT))
    (folder / "rules" / "below" / "b.yaml").write_text(f"# rule-007: not here\nrules:\n{rules}")
    environ = {"EVENTBRIDGE_HOME": str(folder / "home"), "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules")}
    opened = open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))
    yield opened
    opened.close()


def test_every_rule_and_target_is_on_one_page(runtime: Runtime) -> None:
    """Each page continues after the last name of the previous one; the last page has no cursor."""
    rules: list[str] = []
    targets: list[str] = []
    after: str | None = ""
    while after is not None:
        page = values.rules(runtime, after, "")
        rules += [each.name for each in page["rules"]]
        after = page["cursor"]
    after = ""
    while after is not None:
        page = values.targets(runtime, after, "")
        targets += [each.rule for each in page["targets"]]
        after = page["cursor"]

    assert rules == targets == [f"rule-{number:03d}" for number in range(COUNT)]


def test_rules_are_found_by_a_part_of_their_name(runtime: Runtime) -> None:
    """And so are the targets of such rules."""
    assert [each.name for each in values.rules(runtime, "", "e-13")["rules"]] == [f"rule-13{end}" for end in range(10)]
    assert len(values.targets(runtime, "", "e-13")["targets"]) == 10


def test_a_rule_is_shown_as_written(runtime: Runtime) -> None:
    """With its file and its line; a comment with its name is not mistaken for it."""
    found = rule_text(runtime, runtime.rule_set(), "rule-007")

    assert found is not None
    file = Path(runtime.settings.rules_folder) / found.file
    assert found.text == RULE.format(number=7).rstrip()
    assert file.read_text().splitlines()[found.line - 1].startswith("  rule-007:")


def test_the_overview_shows_the_first_of_many_unhealthy_targets(runtime: Runtime) -> None:
    """And their number."""
    for number in range(30):
        runtime.ledger.targets.set_status(f"rule-{number:03d}", "file", "disabled", "by hand")

    request = Request({"type": "http", "method": "GET", "path": "/page", "query_string": b"", "headers": []})
    found = overview_values(runtime, request, ShownPeriod())

    assert [each.rule for each in found["findings"]] == [f"rule-{number:03d}" for number in range(20)]
    assert found["more_targets"] == 10


def test_a_rule_in_json_has_no_text(tmp_path: Path, runtime: Runtime) -> None:
    """A rule is only shown if it has lines of its own."""
    (tmp_path / "rules").mkdir()
    bus = '"buses": {"b": {"source": {"type": "embedded"}}}'
    rule = '"r": {"bus": "b", "pattern": {}, "targets": {"f": {"type": "file", "path": "/x"}}}'
    text = f'{{{bus}, "rules": {{{rule}}}}}'
    (tmp_path / "rules" / "r.yaml").write_text(text)
    environ = {"EVENTBRIDGE_HOME": str(tmp_path / "home"), "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules")}
    opened = open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))

    assert rule_text(opened, opened.rule_set(), "r") is None
    opened.close()
