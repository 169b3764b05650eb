"""`eventbridge init` creates a folder whose rule, tests and events work with the commands that it prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_what_is_created_can_be_checked_tested_and_published(
    tmp_path: Path, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule's tests hold, the events are as the rule expects, and they can be published."""
    created = eventbridge("init", str(tmp_path / "first"))
    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.setenv("EVENTBRIDGE_RULES_FOLDER", "rules")
    monkeypatch.setenv("EVENTBRIDGE_HOME", str(tmp_path / "first" / ".eventbridge"))

    assert created.code == 0
    assert f"cd {tmp_path / 'first'}" in created.out
    assert eventbridge("rules", "check").out == "1 rule on 1 bus: no errors, 2 tests passed\n"
    tested = eventbridge("rules", "test", "big-orders", "--events", "orders.jsonl").out
    assert [line.split()[1] for line in tested.splitlines()] == ["true", "false", "false"]
    assert eventbridge("events", "publish", "orders", "orders.jsonl").out.startswith(
        "3 events published to orders/events. "
    )


def test_a_folder_with_files_is_refused(tmp_path: Path, eventbridge: Callable[..., Any]) -> None:
    """Nothing of it changes, and a file in place of a folder is refused, too."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "notes.txt").write_text("mine")

    used, file = eventbridge("init", str(own)), eventbridge("init", str(own / "notes.txt"))

    assert (used.code, file.code) == (2, 2)
    assert "holds files already" in used.err
    assert "is a file" in file.err
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


def test_json_names_the_files(tmp_path: Path, eventbridge: Callable[..., Any]) -> None:
    """One document, for programs."""
    result = eventbridge("init", str(tmp_path / "first"), "--json")

    assert result.json == {
        "folder": str(tmp_path / "first"),
        "created": True,
        "files": [{"file": name, "written": True} for name in ("orders.jsonl", "rules/orders.yaml")],
    }
