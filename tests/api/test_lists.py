"""Lists are told page by page, each page behind the one before it, and say where the next one begins."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from api.server import Server

from eventbridge.model.chunk import Piece
from eventbridge.stages.operate import chunk_account

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def pages(looking: httpx.Client, path: str, name: str, **parameters: Any) -> list[Any]:
    """Return what all pages of a list have, one thing a page."""
    found: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        response = looking.get(path, params={"limit": 1, "cursor": cursor, **parameters}).json()
        found += response[name]
        cursor = response["cursor"]
    return found


@pytest.mark.parametrize(
    ("path", "name"), [("/batches", "batches"), ("/dead-letters", "dead_letters"), ("/events", "events")]
)
def test_pages_of_one_are_together_what_one_page_is(path: str, name: str, looking: httpx.Client) -> None:
    """Nothing is told twice, nothing is left out, and the order is the same."""
    whole = looking.get(path, params={"limit": 500}).json()

    assert whole["cursor"] is None
    assert len(whole[name]) >= 1
    assert pages(looking, path, name) == whole[name]


def test_events_are_found_by_type_source_and_subject(looking: httpx.Client) -> None:
    """Those of all that is asked for; an unknown bus is a problem."""
    found = {
        text: sorted(each["event_id"] for each in looking.get(f"/events?{text}").json()["events"])
        for text in (
            "type=order.placed&bus=orders",
            "source=/shop&since=1h",
            "type=order.paid",
            "subject=none",
            'subject=the "Zürich"',
            f"subject={MARKUP}&type=order.placed",
        )
    }

    assert found == {
        "type=order.placed&bus=orders": ["o0", "o1", "o2"],
        "source=/shop&since=1h": ["o0", "o1", "o2"],
        "type=order.paid": [],
        "subject=none": [],
        'subject=the "Zürich"': ["o1"],
        f"subject={MARKUP}&type=order.placed": ["o2"],
    }
    assert looking.get("/events?bus=order").status_code == 404


def test_a_batch_tells_what_it_moved_how_long_it_took_and_its_reconciliation(looking: httpx.Client) -> None:
    """By the beginning of its id."""
    batch = looking.get("/batches").json()["batches"][0]["batch_id"]
    found = looking.get(f"/batches/{batch[:20]}").json()

    assert found["batch"]["batch_id"] == batch
    assert [each["stage"] for each in found["stages"]] == ["prepare", "push", "settle"]
    assert found["reconciliation"]["differences"] == []
    assert found["ranges"]
    assert found["chunks"]


def test_a_page_of_a_chunk_has_some_of_its_pieces_and_goes_on(told: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages together have every attempt once, those of a page that were not delivered first."""
    with told.installation.opened() as runtime:
        (batch,) = (each for each in runtime.ledger.batches() if each.runner == "orders")
        whole = chunk_account.chunk_account(runtime, batch.batch_id, 0)
        told_by_pages: list[str] = []
        pieces: set[Piece] = set()
        monkeypatch.setattr(chunk_account, "MOST_PIECES", 1)
        monkeypatch.setattr(chunk_account, "MOST_ATTEMPTS", 1)
        cursor: str | None = ""
        while cursor is not None:
            page = chunk_account.chunk_account(runtime, batch.batch_id, 0, cursor)
            (attempt,) = page.attempts
            told_by_pages.append(attempt.delivery_id)
            pieces.update(page.pieces)
            cursor = page.cursor

        assert whole.cursor is None
        assert whole.attempts[0].row["outcome"] != "delivered"
        assert sorted(told_by_pages) == sorted(each.delivery_id for each in whole.attempts)
        assert pieces == set(whole.chunk.pieces)
        assert len(pieces) > 1


def test_buses_tell_their_partitions(looking: httpx.Client) -> None:
    """Each with its rules, lag and flow."""
    orders = looking.get("/buses/orders").json()

    assert (orders["source"], orders["topics"], orders["rules"]) == ("embedded", ["placed", "paid"], 2)
    assert {each["lag"] for each in orders["partitions"]} == {0}
    assert orders in looking.get("/buses").json()
    assert looking.get("/buses/order").status_code == 404


def test_replays_are_those_of_the_command_line(looking: httpx.Client, told: Server) -> None:
    """The list is that of the command line, but for what deliveries came to."""
    found = looking.get("/replays").json()
    printed = json.loads(told.installation.run("replay", "list", "--json"))

    assert [(each["replay_id"], each["state"]) for each in found["replays"]] == [
        (each["replay_id"], each["state"]) for each in printed
    ]
    assert found["cursor"] is None
    assert looking.get("/replays/ff").status_code == 404


@pytest.mark.parametrize("path", ["/batches", "/dead-letters", "/events"])
def test_what_is_no_cursor_is_a_problem(path: str, looking: httpx.Client) -> None:
    """It says where to take one from."""
    response = looking.get(path, params={"cursor": "next"})

    assert (response.status_code, "not a cursor" in response.json()["detail"]) == (400, True)
