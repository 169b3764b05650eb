"""A transform of a plug-in that raises, hangs or returns what is not JSON costs only its own rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventbridge.control.publish import publish_events
from eventbridge.testing.plug_ins import Installation
from eventbridge.transform import plug_in

RULES = """
buses: {{orders: {{source: {{type: embedded, start_at: earliest}}}}}}
rules:
  bad:
    bus: orders
    pattern: {{}}
    targets: {{t: {{type: file, path: bad.jsonl, transform: {{form: bad, value: {{how: {how}}}}}}}}}
  good:
    bus: orders
    pattern: {{}}
    targets: {{t: {{type: file, path: good.jsonl, transform: {{form: JSONPATH, value: $.data}}}}}}
"""
PLUG_IN = "the transform type 'bad' of the package acme_bad 1.0 "


def deliver(installation: Installation, streaming: bool = False) -> list[str]:
    """Deliver two events, which reach the file of the other rule; return the details of the dead letters."""
    installation.publish("orders", {"data": 0}, {"data": 1})
    installation.deliver("orders", streaming=streaming)

    assert sorted(installation.lines("good.jsonl")) == [0, 1]
    letters = installation.dead_letters()
    assert {(each["rule"], each["reason"]) for each in letters} <= {("bad", "transform_failed")}
    return [each["detail"] for each in letters]


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "raised ValueError: boom"),
        ("raise half a character", "raised ValueError: \\ud800"),
        ("exit", "raised SystemExit: 0"),
        ("sleep", "has not returned after 0.2 s"),
        ("loop", "has not returned after 0.2 s"),
        ("return a set", "returned what is not JSON: a set has no JSON form: {1, 2}"),
        ("return NaN", "returned what is not JSON: nan is not a JSON number"),
        ("return itself", "returned what is not JSON: "),
    ],
)
def test_what_fails_is_a_dead_letter_that_names_the_package(
    installed: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch, how: str, said: str, streaming: bool
) -> None:
    """Each of its deliveries, with the reason; the other rule gets all of its events."""
    monkeypatch.setattr(plug_in, "RENDER_SECONDS", 0.2)
    found = deliver(installed(RULES.format(how=how)), streaming)

    assert len(found) == 2
    assert all(each.startswith(f"{PLUG_IN}{said}") for each in found), found


@pytest.mark.parametrize("number", ["9" * 6_000, "1e99999999999999999999"], ids=["digits", "exponent"])
def test_a_number_that_python_refuses_is_a_dead_letter(installed: Callable[..., Installation], number: str) -> None:
    """JSON allows any number. The other events of the rule are delivered."""
    installation = installed(RULES.format(how="well"))
    bodies = [
        f'{{"specversion":"1.0","id":"{at}","source":"/s","type":"t","data":{data}}}'
        for at, data in (("1", "1"), ("2", number), ("3", "3"))
    ]
    publish_events(installation._runtime, "orders", None, [each.encode() for each in bodies])
    installation.deliver("orders")

    assert sorted(installation.lines("bad.jsonl")) == [1, 3]
    (letter,) = installation.dead_letters()
    assert letter["detail"].startswith(f"{PLUG_IN}cannot get the event, because it has a number beyond Python's limits")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise at the start", "raised OSError: no route to host"),
        ("open nothing", "opened None, but must return a function"),
    ],
)
def test_one_that_cannot_be_made_puts_its_rule_on_hold(
    installed: Callable[..., Installation], caplog: pytest.LogCaptureFixture, how: str, said: str
) -> None:
    """Its events wait until someone acts, and the other rule gets all of its events."""
    installation = installed(RULES.format(how=how))

    assert deliver(installation) == []
    assert installation.deliver("orders").batches == 0
    assert "the rule bad cannot be routed and is on hold until" in caplog.text
    assert f"{PLUG_IN}{said}" in caplog.text


def test_a_test_of_a_rule_gives_up_one_that_hangs(
    installed: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rules check` ends, with the package in the error."""
    monkeypatch.setattr(plug_in, "RENDER_SECONDS", 0.2)
    tests = "    tests: [{event: {type: t, data: 1}, outputs: {t: 1}}]\n"
    (error,) = installed(RULES.format(how="sleep").replace("  good:\n", f"{tests}  good:\n")).rule_errors()

    assert f"the transform of target t fails: {PLUG_IN}has not returned after 0.2 s" in error
