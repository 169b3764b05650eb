"""`eventbridge rules`: check, show, test."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EVENT = {"specversion": "1.0", "id": "o1", "source": "/shop", "type": "order.placed", "data": {"amount": 1500}}


def test_check_counts_what_it_read(eventbridge: Callable[..., Any]) -> None:
    """Rule files without errors: one line, exit code 0."""
    result = eventbridge("rules", "check")

    assert (result.code, result.out, result.err) == (0, "2 rules on 1 bus: no errors\n", "")


def test_check_reports_every_error_with_its_place(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """All errors of all files, each with file, line, column, path and remedy; exit code 2, no traceback."""
    shop.write("rules/second.yaml", "rules:", "  x:", "    bus: order", "    patern: {}")

    result = eventbridge("rules", "check")

    assert result.code == 2
    assert result.out == ""
    lines = result.err.splitlines()
    assert lines[0].startswith("Error: ")
    assert len(lines) > 2
    assert any("second.yaml:3:" in line and "$.rules.x.bus" in line and "orders" in line for line in lines)
    assert any("second.yaml:4:" in line and "pattern" in line for line in lines)


def test_check_gives_errors_as_json(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """With --json the errors are on standard output; the exit code stays 2."""
    shop.write("rules/second.yaml", "rules:", "  x:", "    bus: orders", "    patern: {}")

    result = eventbridge("rules", "check", "--json")

    assert result.code == 2
    assert {"file", "line", "column", "path", "message", "remedy"} == set(result.json["errors"][0])
    assert (result.code, result.err) == (2, "")
    assert result.err == ""


def test_a_terminal_gets_no_more_errors_than_it_can_hold(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """`rules check`, and `status` while older rules stay in force, name 200 and count the rest; JSON has all."""
    wrong = "\n".join(f"  Wrong{number}: {{}}" for number in range(301))
    (delivered.rules / "more.yaml").write_text(f"rules:\n{wrong}\n")

    checked = eventbridge("rules", "check")
    status = eventbridge("status")
    count = len(eventbridge("rules", "check", "--json").json["errors"])

    assert count > 300
    assert len(checked.err.splitlines()) == 202
    assert checked.err.splitlines()[0] == f"Error: {count} errors in the rule files:"
    assert checked.err.splitlines()[-1] == f"and {count - 200} more"
    assert sum("more.yaml" in line for line in status.out.splitlines()) == 200
    assert f"  and {count - 200} more\n" in status.out
    assert len(eventbridge("status", "--json").json["errors"]) == count


def test_check_warns_of_conditions_that_match_nothing(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """The rules are good, exit code 0; the warning names rule, condition and remedy."""
    shop.write(
        "rules/second.yaml", "rules:", "  x: {bus: orders, pattern: {time: [5]}, targets: {f: {type: file, path: x}}}"
    )

    plain, as_json = eventbridge("rules", "check"), eventbridge("rules", "check", "--json")

    said = 'rule x: $.pattern.time: 5 matches no event: time is text. Write it in quotes: "5"'
    assert (plain.code, as_json.code) == (0, 0)
    assert plain.err == f"Warning: {said}.\n"
    assert as_json.json["warnings"] == [said]


@pytest.mark.parametrize(
    ("path", "message", "remedy"),
    [
        ("made", "'{folder}/made' is a folder", "Name a file in it, such as {folder}/made/deliveries.jsonl"),
        (
            "file/deep/er",
            "'{folder}/file' is a file, so it cannot be a folder of '{folder}/file/deep/er'",
            "Name another",
        ),
        ("pipe", "'{folder}/pipe' exists, but is not a file", "Name another"),
        ("x" * 300, " cannot be a file: File name too long", "Name another"),
    ],
)
def test_check_looks_whether_a_file_target_can_be_written_to(
    path: str, message: str, remedy: str, shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """The check reports an obstacle in the path; at run time only this target is affected."""
    (shop.folder / "made").mkdir()
    (shop.folder / "file").write_text("")
    os.mkfifo(shop.folder / "pipe")
    shop.write_rules(more=f"      more: {{type: file, path: {shop.folder}/{path}}}")

    result = eventbridge("rules", "check", "--json")

    assert result.code == 2
    [error] = result.json["errors"]
    assert (error["line"], error["path"]) == (17, "$.rules.all-orders.targets.more.path")
    assert message.format(folder=shop.folder) in error["message"]
    assert error["remedy"].startswith(remedy.format(folder=shop.folder))
    assert eventbridge("rules", "list").code == 0


def test_check_lets_folders_be_missing(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """The target makes the folders, and appends to an existing file."""
    (shop.folder / "old.jsonl").write_text("{}\n")
    paths = [f"{shop.folder}/not/there/yet.jsonl", f"{shop.folder}/old.jsonl", "relative/new.jsonl"]
    shop.write_rules(more="\n".join(f"      t{n}: {{type: file, path: {path}}}" for n, path in enumerate(paths)))

    assert eventbridge("rules", "check").code == 0


def test_check_warns_of_streaming_tasks_that_take_every_slot(
    shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment says how many tasks Airflow runs; it is no error."""
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "1")
    shop.write("rules/runners.yaml", "runners:", "  orders: {mode: streaming}")

    result = eventbridge("rules", "check")

    assert result.code == 0
    assert result.err.startswith("Warning: 1 runner is in streaming mode, and core.parallelism of Airflow is 1: ")


def test_another_folder_can_be_named(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """--rules reads another folder than the settings name; one that is not there is the user's error."""
    assert eventbridge("rules", "check", "--rules", str(shop.rules)).code == 0

    result = eventbridge("rules", "check", "--rules", "nowhere")

    assert result.code == 2
    assert "nowhere" in result.err
    assert "Create it" in result.err


def test_show_lists_rules(eventbridge: Callable[..., Any]) -> None:
    """A line a rule, with its runner, pool and targets."""
    result = eventbridge("rules", "list")

    rows = [line.split() for line in result.out.splitlines()[1:]]
    assert rows[0] == ["rule", "runner", "priority", "pool", "targets"]
    assert ["big-orders", "orders", "medium", "eventbridge.medium", "accounts,", "note"] in rows


def test_show_one_rule_fills_in_defaults(eventbridge: Callable[..., Any]) -> None:
    """One rule is shown whole, as JSON, with everything that its file left out."""
    shown = eventbridge("rules", "show", "big-orders").json

    assert shown["priority"] == "medium"
    assert shown["targets"]["accounts"]["retry"]["policy"] == "EXPONENTIAL_DECAY_RETRY"


def test_show_keeps_the_digits_of_a_pattern(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Numbers of a pattern are shown as they were written, however long."""
    number = "9007199254740993.000000000000000000001"
    text = (shop.rules / "orders.yaml").read_text()
    (shop.rules / "orders.yaml").write_text(text.replace("1000]", f"{number}]"))

    assert f'">", {number}' in eventbridge("rules", "show", "big-orders").out


def test_an_unknown_rule_gets_the_nearest_name(eventbridge: Callable[..., Any]) -> None:
    """A typo in a rule's name gets with the name that was meant; exit code 2."""
    for command in (("show", "big-order"), ("test", "big-order")):
        result = eventbridge("rules", *command)

        assert result.code == 2
        assert "'big-order'" in result.err
        assert "Did you mean big-orders?" in result.err


def test_test_judges_each_event(eventbridge: Callable[..., Any]) -> None:
    """True or false for each line, with its number and the event's id; empty lines are left out."""
    lines = [json.dumps(EVENT), "", json.dumps(EVENT | {"id": "o2", "data": {"amount": 1000}})]

    result = eventbridge("rules", "test", "big-orders", stdin="\n".join(lines).encode())

    assert (result.code, result.out, result.err) == (0, "1: true o1\n3: false o2\n", "")


def test_test_explains_what_failed(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """--explain names the condition that failed and the value that was seen, for false results only."""
    events = shop.orders(1500, 999)

    result = eventbridge("rules", "test", "big-orders", "--events", events, "--explain")

    assert result.out.splitlines() == [
        "1: true o0",
        "2: false o1",
        '    $.data.amount: 999 does not meet [{"numeric":[">",1000]}]',
    ]


def test_test_takes_a_pattern_from_a_file(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """--pattern tries a pattern that is in no rule yet, on any JSON object."""
    pattern = shop.write("pattern.json", '{"a": [{"prefix": "x"}]}')

    result = eventbridge("rules", "test", "--pattern", pattern, stdin=b'{"a": "xy"}\n{"a": "yx"}\n')

    assert result.out == "1: true\n2: false\n"


def test_test_says_that_it_does_not_evaluate_where(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Only Spark can: the results are the pattern's, and a note on standard error says so, of such rules only."""
    text = (shop.rules / "orders.yaml").read_text()
    (shop.rules / "orders.yaml").write_text(text.replace("bus: orders\n", "bus: orders\n    where: 'false'\n", 1))

    result = eventbridge("rules", "test", "big-orders", stdin=json.dumps(EVENT).encode())
    other = eventbridge("rules", "test", "all-orders", stdin=json.dumps(EVENT).encode())

    assert (result.code, result.out) == (0, "1: true o1\n")
    assert (
        result.err == "Note: the rule has `where`, which only Spark evaluates: "
        "`where` may still reject an event that matches here\n"
    )
    assert other.err == ""


def test_test_says_what_no_bus_would_take(eventbridge: Callable[..., Any]) -> None:
    """A rule's pattern may match what is not a CloudEvent; the response says that a bus would refuse it."""
    event = {name: value for name, value in EVENT.items() if name != "source"}

    result = eventbridge("rules", "test", "big-orders", stdin=json.dumps(event).encode())

    assert result.code == 0
    assert result.out.startswith("1: true o1 (not a CloudEvent: $.source: ")


def test_test_continues_after_a_line_that_is_no_object(eventbridge: Callable[..., Any]) -> None:
    """What is not one JSON object is an error of its line; the others get a response, and the exit code is 2."""
    result = eventbridge("rules", "test", "big-orders", stdin=b"nonsense\n[1]\n" + json.dumps(EVENT).encode())

    first, second, third = result.out.splitlines()
    assert result.code == 2
    assert first.startswith("1: error not JSON")
    assert second.startswith("2: error ")
    assert third == "3: true o1"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            b"specversion: '1.0'\ntype: order.placed\ndata:\n  amount: 7\n",
            "no line is one JSON object; line 1 is not JSON",
        ),
        (b'{\n  "type": "order.placed"\n}\n', "no line is one JSON object; line 1 is not JSON"),
        (b"a: 1\n" * 1000, "none of the first 20 lines is one JSON object; line 1 is not JSON"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_test_of_what_is_no_json_lines_is_one_error(
    events: bytes, said: str, options: tuple[str, ...], eventbridge: Callable[..., Any]
) -> None:
    """YAML, or JSON over several lines, is one error with what to do, and not one for each line."""
    result = eventbridge("rules", "test", "big-orders", *options, stdin=events)

    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert f"standard input: {said}" in result.err
    assert "`jq -c .`" in result.err


def test_test_gives_responses_as_json(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """With --json: a list of responses, findings in parts."""
    events = shop.orders(1500, 999)

    found = eventbridge("rules", "test", "big-orders", "--events", events, "--explain", "--json").json

    assert found[0] == {"line": 1, "event": "o0", "matches": True, "error": None, "malformed": None, "findings": []}
    assert found[1]["findings"][0]["path"] == "$.data.amount"
    assert found[1]["findings"][0]["values"] == ["999"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--events", "nowhere.jsonl"), "cannot read nowhere.jsonl: No such file"),
        (("--events", "."), "cannot read .: Is a directory"),
        (("--events", "a\0b"), "cannot read"),
    ],
)
def test_events_that_cannot_be_read(arguments: tuple[str, ...], said: str, eventbridge: Callable[..., Any]) -> None:
    """A missing or invalid file of events is reported in one line; exit code 2."""
    result = eventbridge("rules", "test", "big-orders", *arguments)

    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b"[]", b'{"a": [{"prefx": "x"}]}', b'{"a": 1}'])
def test_a_pattern_that_is_none(content: bytes, tmp_path: Path, eventbridge: Callable[..., Any]) -> None:
    """A pattern file that is not text, not JSON or not in the language is the user's error."""
    (tmp_path / "pattern.json").write_bytes(content)

    result = eventbridge("rules", "test", "--pattern", str(tmp_path / "pattern.json"))

    assert result.code == 2
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1


def test_a_rule_or_a_pattern_not_both(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Neither, or both, is a usage error."""
    pattern = shop.write("pattern.json", "{}")

    assert eventbridge("rules", "test").code == 2
    assert eventbridge("rules", "test", "big-orders", "--pattern", pattern).code == 2


def test_control_characters_of_events_do_not_reach_the_terminal(eventbridge: Callable[..., Any]) -> None:
    """An id with an escape sequence or a lone surrogate is printed escaped, as text and as JSON."""
    event = json.dumps(EVENT | {"id": "\x1b[31mred\ud800"}).encode()

    shown = eventbridge("rules", "test", "big-orders", stdin=event)
    as_json = eventbridge("rules", "test", "big-orders", "--json", stdin=event)

    assert "\x1b" not in shown.out
    assert "\\x1b[31mred\\ud800" in shown.out
    assert as_json.json[0]["event"] == "\x1b[31mred\ud800"
