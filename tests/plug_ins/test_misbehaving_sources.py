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


def test_a_source_that_behaves_is_delivered(installed: Callable[..., Installation]) -> None:
    """Its one message, once."""
    installation = installed(RULES.format(how="well"))
    installation.deliver("bad")

    assert [each["data"] for each in installation.lines("bad.jsonl")] == [{"id": 1}]
