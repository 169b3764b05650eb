"""`eventbridge heartbeat`: one event that a receiver takes, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventbridge.testing.receiver import Receiver


def test_a_heartbeat_says_how_all_stands(delivered: Any, eventbridge: Callable[..., Any], tmp_path: Path) -> None:
    """Exit code 0, and the receiver has one CloudEvent; where nobody listens 4, and a sentence."""
    with Receiver(tmp_path / "beats.jsonl") as receiver:
        done = eventbridge("heartbeat", receiver.url("/healthy/beat"), "--json")

        assert done.code == 0
        assert (done.json["trouble"], done.json["books_difference"]) == ([], 0)
        assert done.json["targets_not_ok"] > 0
        assert [each["path"] for each in receiver.requests()] == ["/healthy/beat"]
        assert eventbridge("heartbeat", receiver.url("/status/500")).code == 4

    nowhere = eventbridge("heartbeat", "ftp://example")
    assert (nowhere.code, nowhere.err.count("https://")) == (2, 1)
