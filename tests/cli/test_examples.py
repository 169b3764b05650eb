"""The examples in the help of each command are commands that exist, and that do what they are for."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from typer.main import get_command

from eventbridge.cli import app
from eventbridge.cli.examples import EXAMPLES

LINES = [(words, line) for words, lines in EXAMPLES.items() for line in lines]
#: Commands whose examples need no Spark, network, Airflow or id, and exit with 0 on a shop whose events are delivered.
RUN = [
    "status", "audit", "stats", "rules check", "rules schema", "rules list", "rules show", "rules history",
    "rules pause", "rules resume", "rules enable", "rules priority", "rules release", "buses list", "buses show",
    "events find", "events show", "events why", "targets list", "targets show", "targets check", "targets pause",
    "targets resume", "targets enable", "targets rate", "dead-letters list", "redrives list", "replays list",
    "batches list", "schemas list", "plugins list", "plugins show", "quality list", "tokens create", "tokens list",
    "ledger migrate", "backup check",
]  # fmt: skip


def words_of(line: str) -> list[str]:
    """Return the arguments of `eventbridge` in an example, without the commands and files around it."""
    command = line.partition("| eventbridge ")[2] or line
    return shlex.split(command.partition(" | ")[0].partition(" > ")[0])


@pytest.mark.parametrize(("words", "line"), LINES, ids=[line for _, line in LINES])
def test_an_example_is_a_command_line_of_its_command(words: str, line: str) -> None:
    """Each line parses: its command, arguments and options exist, and their values are of the right type."""
    command, arguments = get_command(app), words_of(line)
    context = command.make_context("eventbridge", list(arguments), resilient_parsing=True)
    for name in words.split():
        assert arguments[0] == name
        command, arguments = command.commands[name], arguments[1:]
        resilient = hasattr(command, "commands")
        context = command.make_context(name, list(arguments), parent=context, resilient_parsing=resilient)


def test_every_command_has_examples_in_its_help(eventbridge: Callable[..., Any]) -> None:
    """None is missing, and none is of a command that does not exist."""
    assert sorted(EXAMPLES) == sorted(_leaves(get_command(app)))
    assert "\n  Examples:\n    eventbridge rules list\n" in eventbridge("rules", "list", "-h").out


def test_the_examples_work(shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shop whose events are published, each exits with 0."""
    shop.orders(2000)
    lines = (shop.folder / "orders.jsonl").read_text().replace('"o0"', '"1"')
    (shop.folder / "orders.jsonl").write_text(lines)
    monkeypatch.chdir(shop.folder)
    assert eventbridge("events", "publish", "orders", "orders.jsonl").code == 0
    shop.deliver()

    failed = []
    for words in RUN:
        for line in EXAMPLES[words]:
            if "--batch" not in line and "--portal" not in line:  # these need the id of a batch, or an owner
                result = eventbridge(*words_of(line))
                failed += [(line, result.err or result.out)] if result.code else []

    assert failed == []


def _leaves(group: Any, before: str = "") -> list[str]:
    found = []
    for name, command in group.commands.items():
        words = f"{before} {name}".strip()
        found += _leaves(command, words) if hasattr(command, "commands") else [words]
    return found
