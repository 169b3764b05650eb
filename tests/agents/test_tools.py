"""Each tool of `eventbridge mcp` returns the document of its call of the API, bounded, and changes nothing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from agents.agent import Agent
from agents.conftest import CARD
from api.server import Installation, order

from eventbridge.cli import main
from eventbridge.errors import UserError
from eventbridge.mcp.tools import result_of
from eventbridge.rules.json_schema import rule_file_schema

NEW_RULE = """
rules:
  large:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 16]}]}}
    targets: {copy: {type: http, url: "https://example.com/hook"}}
"""


def test_an_agent_reads_what_each_tool_does(agent: Agent) -> None:
    """Every tool only reads, describes itself and each argument, and refuses other arguments."""
    tools = agent.tools()

    assert len(tools) == 16
    for tool in tools.values():
        assert tool.description
        assert tool.annotations is not None
        assert (tool.annotations.read_only_hint, tool.annotations.destructive_hint) == (True, False)
        assert tool.input_schema["additionalProperties"] is False
        assert [name for name, each in tool.input_schema["properties"].items() if not each.get("description")] == []
        assert tool.output_schema is not None
    assert "get_status" in agent.instructions


@pytest.mark.parametrize(
    ("tool", "arguments", "command"),
    [
        ("get_rule", {"rule": "billed"}, ["rules", "show", "billed"]),
        ("list_rules", {}, ["rules", "list"]),
        ("list_targets", {}, ["targets", "list"]),
        ("explain_event", {"event_id": "o17"}, ["events", "why", "o17"]),
        ("find_events", {"type": "order.placed"}, ["events", "find", "--type", "order.placed"]),
        ("list_event_types", {}, ["schemas", "list"]),
    ],
)
def test_a_tool_returns_the_document_of_the_command_line(
    tool: str,
    arguments: dict[str, Any],
    command: list[str],
    seeing: Agent,
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the same names of fields, except that a list is a page."""
    found = seeing.call(tool, **arguments)

    for name, value in installation.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["eventbridge", *command, "--json"])
    with pytest.raises(SystemExit):
        main()
    printed = json.loads(capsys.readouterr().out)
    assert found in (printed, {**printed, "next": None} if isinstance(printed, dict) else None) or printed in [
        each for each in found.values() if isinstance(each, list)
    ]


def test_an_event_is_explained(agent: Agent) -> None:
    """Which rules matched it, why not, and what became of each delivery."""
    (event,) = agent.call("explain_event", event_id="o16")["events"]

    billed = next(each for each in event["rules"] if each["rule"] == "billed")
    assert (billed["matched"], [each["path"] for each in billed["conditions"] if not each["met"]]) == (
        False,
        ["$.data.amount"],
    )
    (event,) = agent.call("explain_event", event_id="o17")["events"]
    states = {f"{each['rule']}/{each['target']}": each["state"] for each in event["deliveries"]}
    assert states == {
        "all-orders/archive": "delivered",
        "billed/webhook": "dead_lettered",
        "waiting/partner": "scheduled",
        "numbers/crm": "dead_lettered",
    }


def test_status_names_what_fails(agent: Agent) -> None:
    """And dead letters are counted by rule, target and reason."""
    status = agent.call("get_status")
    groups = agent.call("count_dead_letters")["groups"]

    assert [(each["rule"], each["target"]) for each in status["pending"]] == [("waiting", "partner")]
    assert {(each["rule"], each["reason"], each["count"]) for each in groups} >= {
        ("billed", "maximum_retry_attempts", 2),
        (None, "malformed", 1),
    }


def test_lists_have_pages(agent: Agent) -> None:
    """Of at most `limit` items; `next` leads to the other ones."""
    first = agent.call("list_dead_letters", limit=1)
    second = agent.call("list_dead_letters", limit=1, cursor=first["next"])

    assert [len(each["dead_letters"]) for each in (first, second)] == [1, 1]
    assert first["dead_letters"] != second["dead_letters"]
    assert "cursor" in agent.error("list_dead_letters", cursor="nonsense")


def test_the_examples_in_descriptions_are_valid(agent: Agent, seeing: Agent) -> None:
    """The rule file, the pattern with its operators, and the text for a pattern alone."""
    about = {name: each.description or "" for name, each in agent.tools().items()}
    rule_file = about["check_rules"].partition("A rule file is YAML:\n")[2]
    pattern_alone = about["backtest_rules"].splitlines()[-1]
    operators = re.findall(
        r"\{\"[a-z-]+\": (?:\"[^\"]+\"|true|\[[^].]+\])\}", about["test_pattern"].partition("In place")[2]
    )
    example = re.findall(r"ORed: (\{.*\})\.$", about["test_pattern"], re.MULTILINE)

    assert agent.call("check_rules", content=rule_file)["errors"] == []
    assert seeing.call("backtest_rules", candidate=pattern_alone)["rules"][0]["rule"] == "try"
    assert len(operators) == 10
    for pattern in (*example, *(f'{{"a": [{each}]}}' for each in operators)):
        assert "matched" in agent.call("test_pattern", pattern=pattern, event=order())


def test_a_large_result_is_cut() -> None:
    """Its long texts, then its lists, but not the page of a list, whose `next` would skip items."""
    status = {"now": "2026", "text": "x" * 10_000, "partitions": [{"lag": number} for number in range(50_000)]}
    page = {"rules": {str(number): {"text": "x" * 4_000} for number in range(30)}, "next": None}
    buses = {"buses": {str(number): "x" * 4_000 for number in range(100)}, "rules": {"a": {}}, "next": None}

    cut = result_of(json.dumps(status).encode())
    cut_buses = result_of(json.dumps(buses).encode(), "rules")

    assert (len(cut["partitions"]), len(cut["text"]) < 5_000) == (200, True)
    assert "partitions had 50,000" in cut["cut"]
    assert (len(cut_buses["buses"]), cut_buses["rules"]) == (20, {"a": {}})
    with pytest.raises(UserError, match="smaller `limit`"):
        result_of(json.dumps(page).encode(), "rules")


def test_an_agent_reads_how_rule_files_are_written(agent: Agent) -> None:
    """As the JSON Schema that `eventbridge rules schema` prints."""
    assert agent.call("get_rule_file_schema") == json.loads(json.dumps(rule_file_schema()))


def test_a_pattern_is_tested_on_an_event(agent: Agent, seeing: Agent) -> None:
    """With a rule or without, on an event of the call or of the archive; numbers are compared as written."""
    event = order(17, data={"amount": 17})

    alone = agent.call("test_pattern", pattern={"data": {"amount": [17]}}, event=event)
    as_text = agent.call("test_pattern", pattern='{"data": {"amount": [1.70e1]}}', event=json.dumps(event))
    of_rule = agent.call("test_pattern", rule="billed", event=order(3))
    of_archive = seeing.call("test_pattern", pattern={"data": {"card": [CARD]}}, event_id="o17")

    assert (alone["matched"], alone["payloads"], as_text["matched"]) == (True, [], True)
    assert (of_rule["matched"], of_rule["payloads"][0]["target"]) == (False, "webhook")
    assert of_archive["matched"] is True


def test_a_rule_file_is_checked_as_text(agent: Agent, installation: Installation) -> None:
    """Beside the other files, without being written; a name outside the folder is refused."""
    before = sorted((installation.folder / "rules").iterdir())

    good = agent.call("check_rules", content=NEW_RULE)
    bad = agent.call("check_rules", content="rules: {a: {bus: nowhere, pattern: {}, targets: {}}}", file="a.yaml")

    assert (good["errors"], good["rules"]) == ([], 5)
    assert {(each["file"], each["line"]) for each in bad["errors"]} == {("a.yaml", 1)}
    assert "not the name of a rule file" in agent.error("check_rules", content="", file="../../etc/passwd.yaml")
    assert sorted((installation.folder / "rules").iterdir()) == before


def test_rules_are_backtested_on_recent_events(agent: Agent, seeing: Agent) -> None:
    """A rule in force and, with the right to see payloads, the text of a new one, with samples."""
    known = agent.call("backtest_rules", candidate="billed", from_="1d")
    new = seeing.call("backtest_rules", candidate=NEW_RULE, from_="1d", samples=1)

    assert (known["events"], known["rules"][0]["matched"]) == (4, 2)
    assert (new["rules"][0]["matched"], len(new["rules"][0]["targets"][0]["samples"])) == (2, 1)
    assert "no event" not in json.dumps(new)
    assert "`eventbridge rules backtest`" in agent.error("backtest_rules", candidate="numbers")


def test_the_tools_write_nothing(seeing: Agent, installation: Installation) -> None:
    """Neither into the store nor into the folders of rules and targets, also a backtest of new rules."""

    def files() -> dict[Path, bytes]:
        return {
            each: each.read_bytes()
            for each in installation.folder.rglob("*")
            if each.is_file() and "ledger.sqlite" not in each.name and each.suffix != ".log"
        }

    before = files()
    new_rule = NEW_RULE.replace("large", "unwritten")
    seeing.call("check_rules", content=new_rule)
    seeing.call("backtest_rules", candidate=new_rule, from_="1d")
    for tool in ("get_status", "find_events", "count_dead_letters", "list_rules"):
        seeing.call(tool)

    assert files() == before


def test_an_agent_answers_a_question_about_an_order(seeing: Agent) -> None:
    """ "Why did the order of 17 not reach the webhook?": its event is found by a field, and explained."""
    pattern = "{data: {amount: [17]}}"
    target = '{t: {type: http, url: "https://example.com"}}'
    text = f"rules: {{try: {{bus: orders, pattern: {pattern}, targets: {target}}}}}"

    (rule,) = seeing.call("backtest_rules", candidate=text, from_="1d")["rules"]
    event_id = rule["targets"][0]["samples"][0]["of"]["event_id"]
    (event,) = seeing.call("explain_event", event_id=event_id)["events"]
    (delivery,) = [each for each in event["deliveries"] if each["target"] == "webhook"]
    failing = {each["target"]: each["failing_since"] for each in seeing.call("list_targets")["targets"]}

    assert (event_id, delivery["state"], delivery["reason"]) == ("o17", "dead_lettered", "maximum_retry_attempts")
    assert [name for name, since in failing.items() if since] == ["webhook", "partner"]


def everything(agent: Agent) -> str:
    """Return the text of every result that may quote an event."""
    found = [agent.call(each) for each in ("get_status", "count_dead_letters", "list_dead_letters", "find_events")]
    found += [agent.call("get_dead_letter", name=each["name"]) for each in found[2]["dead_letters"]]
    found += [agent.call("explain_event", event_id=each) for each in ("o0", "o17")]
    found += [agent.call("describe_event_type", type="order.placed"), agent.call("list_targets")]
    found += [agent.call("backtest_rules", candidate="billed", from_="1d")]
    return json.dumps(found)


def test_payloads_are_hidden_without_the_right(agent: Agent, seeing: Agent) -> None:
    """Neither results nor conditions reveal them; the error says which right is missing."""
    assert CARD in everything(seeing)
    assert CARD not in everything(agent)
    for tool, arguments in (
        ("find_events", {"subject": "x"}),
        ("find_events", {"condition": "$.data.card = 4"}),
        ("test_pattern", {"pattern": {}, "event_id": "o17"}),
        ("backtest_rules", {"candidate": NEW_RULE}),
        ("backtest_rules", {"candidate": "rules: {large: {bus: orders, pattern: {}, targets: {}}}"}),
    ):
        assert "payloads" in agent.error(tool, **arguments)


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("nope", {}, "get_status"),
        ("find_events", {"since": "1h"}, "'since' was unexpected"),
        ("find_events", {"limit": 101}, "maximum of 100"),
        ("find_events", {"limit": "many"}, "limit"),
        ("find_events", {"from": "yesterday"}, "yesterday"),
        ("find_events", {"bus": "\0"}, "NUL"),
        ("get_rule", {"rule": "bill"}, "billed"),
        ("get_rule", {"rule": "billed/versions"}, "rule"),
        ("get_rule", {}, "'rule' is a required property"),
        ("explain_event", {"event_id": "../status"}, "no event"),
        ("explain_event", {"event_id": ""}, "event_id"),
        ("get_dead_letter", {"name": "o17"}, "o17"),
        ("test_pattern", {"pattern": {"type": "x"}, "event": order()}, "$.type"),
        ("test_pattern", {"pattern": "{", "event": order()}, "pattern: this text is not a JSON object"),
        ("test_pattern", {"pattern": {}, "event": {}}, "not an event"),
        ("test_pattern", {"event": order()}, "a rule, a pattern"),
        ("test_pattern", {"pattern": {}}, "event_id"),
        ("backtest_rules", {"candidate": "/etc/passwd"}, "Paths are not read"),
        ("backtest_rules", {"candidate": "rules.yaml"}, "Paths are not read"),
        ("backtest_rules", {"candidate": "billed", "samples": 11}, "samples"),
    ],
)
def test_an_error_says_what_was_wrong(tool: str, arguments: dict[str, Any], named: str, agent: Agent) -> None:
    """And what to do; there is no traceback, and the next call works."""
    error = agent.error(tool, **{"from_" if name == "from" else name: each for name, each in arguments.items()})

    assert named in error
    assert "Traceback" not in error
    assert len(error) < 1_500


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("test_pattern", {"pattern": {"a": [{"regex": "(a|a)*b" * 1_000}]}, "event": order()}),
        ("test_pattern", {"pattern": json.dumps({"$or": [{"a": [str(n)]} for n in range(10_000)]}), "event": order()}),
        ("test_pattern", {"pattern": "[" * 100_000, "event": order()}),
        ("test_pattern", {"pattern": {}, "event": order(data={"text": "x" * 3_000_000})}),
        ("check_rules", {"content": "a: &a [x]\nb: [*a, *a]\n" * 40_000}),
        ("check_rules", {"content": "x" * 1_100_000}),
        ("backtest_rules", {"candidate": "rules:\n" + "  x: {}\n" * 50_000}),
        ("explain_event", {"event_id": "x" * 1_000_000}),
    ],
)
def test_hostile_input_is_bounded(tool: str, arguments: dict[str, Any], seeing: Agent) -> None:
    """It gets an error of bounded length, or a bounded result, and the next call works."""
    result = seeing.result(tool, **arguments)

    assert sum(len(each.model_dump_json()) for each in result.content) < 300_000
    assert "Traceback" not in str(result.content)
    assert seeing.call("list_targets")["targets"]
