"""What a plug-in prints or says spoils neither a document nor a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed_package import install

MODULE = """
print("loaded by the package")
from typing import Literal
from eventbridge.plugins import Result, TargetFields, TargetType

class Loud(TargetFields):
    type: Literal["loud"] = "loud"

class Sender:
    def __init__(self, setup):
        pass
    def check(self):
        return chr(27) + "[31mred"
    def send(self, requests):
        print("sent by the package")
        return {each.delivery_id: Result.from_status(400, chr(27) + "[31mno such field") for each in requests}

LOUD = TargetType("loud", Loud, Sender)
"""
RULES = """
buses: {b: {source: {type: embedded}}}
rules: {r: {bus: b, pattern: {}, targets: {t: {type: loud}}}}
"""


@pytest.fixture
def loud(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that prints, with a rule that uses it."""
    install(tmp_path / "site", monkeypatch, "acme_loud", MODULE, {"eventbridge.targets": "loud = acme_loud:LOUD"})
    (shop.folder / "rules" / "loud.yaml").write_text(RULES)


def test_a_document_has_nothing_that_a_plug_in_prints(loud: None, eventbridge: Callable[..., Any]) -> None:
    """It is on standard error, where people see it."""
    result = eventbridge("plugins", "list", "--json")

    assert "loud" in [each["type"] for each in json.loads(result.out)]
    assert "loaded by the package" in result.err


def test_a_terminal_gets_no_control_characters_of_a_plug_in(
    loud: None, shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """They are shown as escapes; an error beside a status is shown too."""
    event = shop.folder / "event.json"
    event.write_text('{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}')
    check = eventbridge("targets", "check", "r/t")
    sent = eventbridge("targets", "send", "r/t", "--event", str(event))

    assert "r/t cannot be reached: \\x1b[31mred" in check.out
    assert "r/t did not accept the event: HTTP 400: \\x1b[31mno such field" in sent.out
    assert "sent by the package" not in sent.out
