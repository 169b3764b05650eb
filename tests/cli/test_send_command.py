"""`targets send --event`: one event, from a file or standard input, in as many lines as it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventbridge.cli.lines import one_event

ORDER = {"specversion": "1.0", "id": "o1", "source": "/shop", "type": "order.placed", "data": {"amount": 1500}}
SEND = ("targets", "send", "all-orders/archive", "--event")


def test_an_event_of_several_lines_is_sent(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Indented JSON with empty lines around it is one event, from a file and from standard input."""
    text = f"\n{json.dumps(ORDER, indent=2)}\n\n".encode()
    (shop.folder / "event.json").write_bytes(text)

    for result in (
        eventbridge(*SEND, str(shop.folder / "event.json")),
        eventbridge(*SEND, "-", stdin=text),
    ):
        assert (result.code, result.err.count("error")) == (0, 0)
        assert "accepted the event" in result.out


def test_the_advice_for_input_other_than_one_event_works(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """JSON lines are refused, so nothing advises them: neither of a missing file, nor of one with two events."""
    (shop.folder / "two.jsonl").write_text(f"{json.dumps(ORDER)}\n{json.dumps(ORDER)}\n")

    missing = eventbridge(*SEND, str(shop.folder / "nofile"))
    two = eventbridge(*SEND, str(shop.folder / "two.jsonl"))

    assert [missing.code, two.code] == [2, 2]
    assert "Name a file that holds one event in JSON, or - for standard input" in missing.err
    assert "JSON lines" not in missing.err + two.err
    assert "something follows the document at line 2" in two.err
    assert "Send one event" in two.err


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_end_of_the_last_line_is_not_part_of_the_event(end: bytes, tmp_path: Path) -> None:
    """A target gets the bytes that a delivery of the published line sends, also of an event of the largest size."""
    body = json.dumps(ORDER).encode()
    (tmp_path / "event.json").write_bytes(body + end)

    assert one_event(str(tmp_path / "event.json"), len(body)) == body


def test_a_second_event_after_one_of_the_largest_size_is_refused(tmp_path: Path) -> None:
    """More than one end of a line makes the content too large, so that no second event is left out in silence."""
    body = json.dumps(ORDER).encode()
    (tmp_path / "two.jsonl").write_bytes(body + b"\r\n\r\n" + body)

    assert len(one_event(str(tmp_path / "two.jsonl"), len(body))) > len(body)


def test_an_event_that_is_too_large_is_not_read_whole(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """One byte more than an event may have is enough to refuse a file of any size."""
    with (shop.folder / "large").open("wb") as file:
        file.truncate(50 * 1024**3)  # sparse

    refused = eventbridge(*SEND, str(shop.folder / "large"))

    assert refused.code == 2
    assert "the largest allowed is" in refused.err
