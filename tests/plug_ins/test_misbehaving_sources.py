"""A source of a plug-in that raises, hangs or returns nonsense costs only its own bus."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventbridge.errors import BusError
from eventbridge.sources import plug_in
from eventbridge.testing.plug_ins import Installation

RULES = """
buses:
  bad: {{source: {{type: bad, how: {how}}}}}
  orders: {{source: {{type: embedded, start_at: earliest}}}}
rules:
  bad: {{bus: bad, pattern: {{}}, targets: {{t: {{type: file, path: bad.jsonl}}}}}}
  good:
    bus: orders
    pattern: {{}}
    targets: {{t: {{type: file, path: good.jsonl, transform: {{form: JSONPATH, value: $.data}}}}}}
"""
PLUG_IN = "the source type 'bad' of the package acme_bad 1.0 "


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "raised ValueError: boom"),
        ("raise at the start", "raised OSError: no route to host"),
        ("raise at acknowledge", "raised ValueError: boom"),
        ("hang", "has not returned after "),
        ("return nothing", "returned no list of at most"),
        ("return too many", "returned no list of at most"),
        ("return wrong types", "returned an object of the type bytes from receive"),
        ("return wrong values", "returned a Message whose body is wrong from receive"),
        ("return half a character", "returned a Message that cannot be stored from receive (UnicodeEncodeError("),
        ("return a time before all times", "returned a Message that cannot be stored from receive (OverflowError("),
    ],
)
def test_its_runner_fails_with_the_name_of_the_package(
    installed: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch, how: str, said: str, streaming: bool
) -> None:
    """The runner of the other bus delivers."""
    monkeypatch.setattr(plug_in, "_SECONDS", 1.0)
    installation = installed(RULES.format(how=how))
    with pytest.raises(BusError) as caught:
        installation.deliver("bad", streaming=streaming)

    assert f"{PLUG_IN}{said}" in str(caught.value)
    installation.publish("orders", {"data": 1})
    installation.deliver("orders", streaming=streaming)
    assert installation.lines("good.jsonl") == [1]


def test_an_error_does_not_show_the_secrets_of_a_connection(installed: Callable[..., Installation]) -> None:
    """Asterisks stand for what the plug-in read."""
    crm = "https://me:hush-hush@crm.example"
    with pytest.raises(BusError, match=r"raised OSError: login failed with \*{9}$"):
        installed(RULES.format(how="tell a secret"), EVENTBRIDGE_CONN_CRM=crm).deliver("bad")


def test_a_source_that_behaves_is_delivered(installed: Callable[..., Installation]) -> None:
    """Its one message, once."""
    installation = installed(RULES.format(how="well"))
    installation.deliver("bad")

    assert [each["data"] for each in installation.lines("bad.jsonl")] == [{"id": 1}]
