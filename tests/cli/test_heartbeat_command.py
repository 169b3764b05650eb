"""`eventbridge heartbeat`: one event that a receiver takes, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from demo.receiver import Receiver


def test_a_heartbeat_says_how_all_stands(delivered: Any, eventbridge: Callable[..., Any], tmp_path: Path) -> None:
    """Exit code 0, and the receiver has one CloudEvent; without a listening server 4, and a sentence."""
    with Receiver(tmp_path / "beats.jsonl") as receiver:
        done = eventbridge("heartbeat", receiver.url("/healthy/beat"), "--json")

        assert done.code == 0
        assert (done.json["problems"], done.json["reconciliation_difference"]) == ([], 0)
        assert done.json["targets_not_ok"] > 0
        assert [each["path"] for each in receiver.requests()] == ["/healthy/beat"]
        assert eventbridge("heartbeat", receiver.url("/status/500")).code == 4

    nowhere = eventbridge("heartbeat", "ftp://example")
    assert (nowhere.code, nowhere.err.count("https://")) == (2, 1)


def test_an_address_that_is_a_secret_is_no_argument(
    shop: Any, eventbridge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the host sees arguments, so the address may stand in a connection; without either, a sentence."""
    neither = eventbridge("heartbeat")
    with Receiver(tmp_path / "beats.jsonl") as receiver:
        held = {"conn_type": "http", "extra": {"secret_url": receiver.url("/healthy/hunter2")}}
        monkeypatch.setenv("EVENTBRIDGE_CONN_BEATS", json.dumps(held))
        monkeypatch.setenv("EVENTBRIDGE_HEARTBEAT_CONNECTION", "beats")
        done = eventbridge("heartbeat")

        assert done.code == 0, done.err
        assert [each["path"] for each in receiver.requests()] == ["/healthy/hunter2"]
    assert (neither.code, "set EVENTBRIDGE_HEARTBEAT_CONNECTION" in neither.err) == (2, True)
