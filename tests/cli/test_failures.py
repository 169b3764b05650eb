"""What a command says when it fails: what may be meant, and with --json one JSON object of one shape."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventbridge import errors
from eventbridge.cli.failure import ABORTED, BUG, CODES, SYSTEM, USAGE, product_failure
from eventbridge.cli.suggestion import suggestion
from eventbridge.errors import EventBridgeError, NotFoundError, UserError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli" / "index.md"

WRONG = [
    (("no-such-command",), "usage", 2),
    (("rules", "lst"), "usage", 2),
    (("status", "--no-such-option"), "usage", 2),
    (("status", "--batches", "many"), "usage", 2),
    (("events", "publish"), "usage", 2),
    (("rules", "show", "big-order"), "not_found", 2),
    (("events", "publish", "order", "x.jsonl"), "not_found", 2),
    (("rules", "disable", "big-orders"), "invalid_input", 2),
    (("dead-letters", "list", "--rule", "nope"), "not_found", 2),
    (("dead-letters", "list", "--from", "yesterdy"), "invalid_input", 2),
    (("init-airflow", "nowhere"), "invalid_input", 2),
]


@pytest.mark.parametrize(("arguments", "code", "exit_code"), WRONG, ids=lambda value: str(value))
def test_an_error_with_json_is_one_object_on_the_last_line(
    arguments: tuple[str, ...], code: str, exit_code: int, eventbridge: Callable[..., Any]
) -> None:
    """Standard output stays empty; the last line of standard error has code, message, remedy and exit code."""
    result = eventbridge(*arguments, "--json")
    text = eventbridge(*arguments)
    found = json.loads(result.err.splitlines()[-1])["error"]

    assert (result.code, result.out) == (exit_code, "")
    assert (text.code, text.out) == (exit_code, "")
    assert set(found) == {"code", "message", "remedy", "exit_code"}
    assert found["remedy"] is None or found["message"].endswith(found["remedy"])
    assert (found["code"], found["exit_code"]) == (code, exit_code)
    assert text.err.endswith(f"Error: {found['message']}\n")


def test_errors_in_rule_files_are_fields(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """A program reads file, line, column, path, message and remedy of each error, whichever command met them."""
    (shop.rules / "orders.yaml").write_text("buses: {orders: {source: {type: embeded}}}\n")

    found = json.loads(eventbridge("status", "--json").err.splitlines()[-1])["error"]

    assert found["code"] == "invalid_rules"
    assert [set(each) for each in found["errors"]] == [{"file", "line", "column", "path", "message", "remedy"}]
    assert (found["errors"][0]["line"], found["errors"][0]["path"]) == (1, "$.buses.orders.source.type")


def test_a_failure_of_the_machine_has_its_shape_too(shop: Any) -> None:
    """A home that cannot be made is no traceback and no text: exit code 4 and the JSON object."""
    result = shop.run_process("rules", "pause", "all-orders", "--json", env={"EVENTBRIDGE_HOME": "/proc/nowhere"})
    found = json.loads(result.err.splitlines()[-1])["error"]

    assert (result.code, result.out) == (4, "")
    assert found["exit_code"] == 4
    assert found["code"] in set(CODES.values()) | {SYSTEM}


def test_json_behind_two_dashes_is_an_argument(eventbridge: Callable[..., Any]) -> None:
    """What follows `--` is no option: the error is text."""
    assert eventbridge("rules", "show", "--", "--json").err.startswith("Error: no rule file defines a rule '--json'")


def test_every_error_has_a_code_of_its_own() -> None:
    """Each class of errors has a code of its own, and docs/reference/cli/index.md lists them all."""
    classes = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, EventBridgeError)}
    codes = [*CODES.values(), USAGE, ABORTED, SYSTEM, BUG]
    section = PAGE.read_text().partition("## Common behaviour")[2].partition("\n## ")[0]

    assert set(CODES) == classes
    assert len(set(codes)) == len(codes)
    assert sorted(re.findall(r"^\| `(\w+)` \| \d+ \|", section, re.MULTILINE)) == sorted(codes)


def test_the_table_of_codes_has_the_exit_codes() -> None:
    """In docs/reference/cli/index.md each code stands with the exit code that its error has."""
    table = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE))

    assert {code: int(table[code]) for code in CODES.values()} == {
        code: error.exit_code for error, code in CODES.items()
    }


def test_text_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --json an error is `Error:` and its message."""
    monkeypatch.setattr(sys, "argv", ["eventbridge", "status"])

    assert product_failure(NotFoundError("no rule")) == "Error: no rule\n"
    assert product_failure(UserError("é")) == "Error: é\n"


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("list", ["check", "show", "history", "test"], "Did you mean show?"),
        ("statsu", ["status", "targets"], "Did you mean status?"),
        ("chekc", ["check", "show"], "Did you mean check?"),
        ("validate", ["check", "show"], "Did you mean check?"),
        ("delete", ["create", "list", "revoke"], "Did you mean revoke?"),
        ("frobnicate", ["show", "check"], "Words: check, show"),
        ("--since", ["--from", "--to", "--json"], "Did you mean --from?"),
        ("--since", ["--since", "--json"], "Did you mean --since?"),
        ("--sinec", ["--since", "--json"], "Did you mean --since?"),
        ("--until", ["--from", "--to"], "Did you mean --to?"),
        ("--since", ["--json"], "Words: --json"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(word: str, known: list[str], said: str) -> None:
    """A misspelt word, or another tool's word for the same, gets the one there is; else all are listed."""
    assert suggestion(word, known, "Words") == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rules", "lst"), "No such command: lst. Did you mean list?"),
        (("rule", "check"), "No such command: rule. Did you mean rules?"),
        (("buses", "publish"), "No such command: publish. Commands: list, show"),
        (("events", "why", "x", "--since", "2h"), "No such option: --since. Did you mean --from?"),
        (("dead-letters", "list", "--since", "2h"), "No such option: --since. Did you mean --from?"),
        (("dead-letters", "list", "--form", "2h"), "No such option: --form. Did you mean --from?"),
        (("audit", "--since", "2h"), "No such option: --since. Options: "),
        (
            ("--limit", "3", "dead-letters", "list"),
            "No such option: --limit. Write it after the command: eventbridge dead-letters list --limit",
        ),
        (
            ("dead-letters", "--limit=3", "list"),
            "No such option: --limit. Write it after the command: eventbridge dead-letters list --limit",
        ),
        (("--limit", "status"), "No such option: --limit. Write it after a command that has it"),
        (("--sinse", "dead-letters", "list"), "No such option: --sinse. Options: "),
    ],
)
def test_a_command_or_option_that_is_none_gets_what_may_be_meant(
    arguments: tuple[str, ...], said: str, eventbridge: Callable[..., Any]
) -> None:
    """The error names the command or option to write, under the usage and the way to the help."""
    result = eventbridge(*arguments)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: eventbridge ")
    assert f"\nError: {said}" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--json", "status"), "Write it after the command: eventbridge status --json"),
        (("--json", "rules", "check"), "Write it after the command: eventbridge rules check --json"),
        (("rules", "--json", "check"), "Write it after the command: eventbridge rules check --json"),
        (("--json",), "Write it after a command that has it"),
    ],
)
def test_json_before_the_command_gets_the_command_line_that_was_meant(
    arguments: tuple[str, ...], said: str, eventbridge: Callable[..., Any]
) -> None:
    """Other tools take options of all commands before the command; the error says where this one takes them."""
    result = eventbridge(*arguments)

    assert (result.code, result.out) == (2, "")
    assert json.loads(result.err)["error"]["message"] == f"No such option: --json. {said}"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("replays start nope --from 1h", "no rule file defines a bus 'nope'. Buses: orders"),
        ("replays start order --from 1h", "no rule file defines a bus 'order'. Did you mean orders?"),
        (
            "replays start orders --from 1h --rule nope",
            "bus 'orders' has no rule 'nope'. Rules: all-orders, big-orders",
        ),
        ("replays start orders --from 1h --target zzz", "has a target 'zzz'. Targets: accounts, archive, note"),
        ("targets pause archive", "Did you mean all-orders/archive?"),
        ("targets resume all-orders", "Did you mean all-orders/archive?"),
        ("targets rate big-orders 10/s", "Targets: big-orders/accounts, big-orders/note"),
        ("targets check big-orders/", "Targets: big-orders/accounts, big-orders/note"),
        ("targets send big-order --event x", "Did you mean big-orders/note?"),
        ("targets enable xyz", "Write RULE/TARGET. Targets: all-orders/archive, big-orders/accounts, big-orders/note"),
        ("rules history nope", "no batch was planned with one. Rules: all-orders, big-orders"),
        ("rules show bigorders@1", "no batch was planned with one. Did you mean big-orders?"),
        ("rules backtest nope --from 1h", "no rule file defines a rule 'nope'. Rules: all-orders, big-orders"),
        ("deliver --runner nope --until-idle", "no rule has the runner 'nope'. Runners: orders"),
        ("schemas show nope", "no event of the type 'nope' was sampled on any bus. Types: none"),
        ("plugins show kafak", "there is no type 'kafak'. Did you mean kafka?"),
        ("schemas list --bus nope", "there is no bus 'nope'. Buses: orders"),
        ("events why o1 --bus nope", "there is no bus 'nope'. Buses: orders"),
        ("tokens revoke nope", "there is no token 'nope'. Tokens: none"),
        ("stats --rule nope", "no rule file defines a rule 'nope'. Rules: all-orders, big-orders"),
        ("events publish orders x --topic nope", "the bus 'orders' has no topic 'nope'. Topics: paid, placed"),
    ],
)
def test_a_name_that_is_none_gets_the_nearest_or_all(
    command: str, said: str, shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """Every command that takes a name says which there are, as it says which commands and options there are."""
    result = eventbridge(*command.split())

    assert said in result.err
    assert (result.code, result.out) == (2, "")


def test_a_confirmation_without_a_terminal_names_the_option(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """`rules disable` in a script ends with code 2 and --yes, and disables nothing."""
    refused = eventbridge("rules", "disable", "big-orders")

    assert (refused.code, refused.out) == (2, "")
    assert "pass --yes to confirm" in refused.err
    assert eventbridge("status", "--json").json["overrides"] == []
    assert eventbridge("rules", "disable", "big-orders", "--yes").code == 0
    assert [each["kind"] for each in eventbridge("status", "--json").json["overrides"]] == ["disabled"]


def test_a_name_that_is_none_needs_no_confirmation(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """`rules disable` of a rule that does not exist names the nearest rule before it asks for --yes."""
    refused = eventbridge("rules", "disable", "big-order")

    assert (refused.code, refused.out) == (2, "")
    assert "no rule file defines a rule 'big-order'. Did you mean big-orders?" in refused.err
    assert "--yes" not in refused.err


@pytest.mark.parametrize(("response", "code"), [("n", 2), ("y", 0)])
def test_a_confirmation_at_a_terminal_is_asked(response: str, code: int, shop: Any) -> None:
    """A person is asked: no ends the command with code 1, yes continues."""
    ours, theirs = pty.openpty()
    with shop.process("rules", "disable", "big-orders", stdin=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        os.write(ours, f"{response}\n".encode())
        out, err = process.communicate(timeout=60)
    os.close(ours)

    assert process.returncode == code, err
    assert "Disable it?" in out
    assert ("aborted" in err) == (response == "n")


def test_a_bug_is_70_with_its_traceback_and_where_to_report_it(
    eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that no code expects is EventBridge's own fault, and not a difference that was found."""
    monkeypatch.setattr("eventbridge.views.buses.status", lambda *_, **__: [][0])

    text, document = eventbridge("buses", "list"), eventbridge("buses", "list", "--json")

    assert (text.code, document.code) == (70, 70)
    assert "Traceback" in text.err
    assert "Error: EventBridge itself failed: IndexError: list index out of range. This is a bug" in text.err
    assert json.loads(document.err.splitlines()[-1])["error"]["code"] == "internal_error"
