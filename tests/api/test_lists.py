"""Paged lists: each page continues the previous one, and has a cursor for the next."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from api.server import Server

from eventbridge.client import ApiError, EventBridgeClient
from eventbridge.model.chunk import Piece
from eventbridge.views import chunks

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def pages(reader: httpx.Client, path: str, name: str, **parameters: Any) -> list[Any]:
    """Return the items of all pages of a list, with one item a page."""
    found: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        url = httpx.URL(path).copy_merge_params({"limit": 1, "cursor": cursor, **parameters})
        response = reader.get(url).json()
        found += response[name]
        cursor = response["next"]
    return found


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/batches", "batches"),
        ("/v1/buses", "buses"),
        ("/v1/chunks", "chunks"),
        ("/v1/chunks?failures=true", "chunks"),
        ("/v1/dead-letters", "dead_letters"),
        ("/v1/events", "events"),
        ("/v1/rules/refused/versions", "versions"),
        ("/v1/schemas/order.placed", "schemas"),
        ("/v1/targets", "targets"),
    ],
)
def test_pages_of_one_item_make_up_the_whole_list(path: str, name: str, reader: httpx.Client) -> None:
    """No item is repeated or missing, and the order is the same."""
    whole = reader.get(path).json()

    assert whole["next"] is None
    assert len(whole[name]) >= 1
    assert pages(reader, path, name) == whole[name]


def test_events_are_found_by_type_source_and_subject(reader: httpx.Client) -> None:
    """Events have to meet all filters; an unknown bus is a problem."""
    found = {
        text: sorted(each["event_id"] for each in reader.get(f"/v1/events?{text}").json()["events"])
        for text in (
            "type=order.placed&bus=orders",
            "source=/shop&from=1h",
            "type=order.paid",
            "subject=none",
            'subject=the "Zürich"',
            f"subject={MARKUP}&type=order.placed",
        )
    }

    assert found == {
        "type=order.placed&bus=orders": ["o0", "o1", "o2"],
        "source=/shop&from=1h": ["o0", "o1", "o2"],
        "type=order.paid": [],
        "subject=none": [],
        'subject=the "Zürich"': ["o1"],
        f"subject={MARKUP}&type=order.placed": ["o2"],
    }
    assert reader.get("/v1/events?bus=order").status_code == 404


@pytest.mark.parametrize("name", ["from", "to"])
def test_a_wrong_time_is_named_by_its_parameter(name: str, reader: httpx.Client) -> None:
    """The problem names the parameter that the caller wrote."""
    response = reader.get("/v1/events", params={name: "yesterday"})

    assert (response.status_code, response.json()["detail"].split()[0]) == (400, name)


def test_a_batch_has_ranges_durations_and_reconciliation(api: EventBridgeClient) -> None:
    """Found by the beginning of its id."""
    batch = api.get("batches")["batches"][0]["batch_id"]
    found = api.get("batches", batch[:20])

    assert found["batch"]["batch_id"] == batch
    assert [each["stage"] for each in found["stages"]] == ["prepare", "push", "settle"]
    assert found["reconciliation"]["differences"] == []
    assert found["ranges"]
    assert found["chunks"]


def test_the_pieces_of_a_chunk_are_paged(delivered: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages together have every attempt once; each page begins with its failed attempts."""
    with delivered.installation.opened() as runtime:
        (batch,) = (each for each in runtime.ledger.batches.find() if each.runner == "orders")
        whole = chunks.chunk_account(runtime, batch.batch_id, 0)
        from_pages: list[str] = []
        pieces: set[Piece] = set()
        monkeypatch.setattr(chunks, "MAX_PIECES", 1)
        monkeypatch.setattr(chunks, "MAX_ATTEMPTS", 1)
        cursor: str | None = ""
        while cursor is not None:
            page = chunks.chunk_account(runtime, batch.batch_id, 0, cursor)
            (attempt,) = page.attempts
            from_pages.append(attempt.delivery_id)
            pieces.update(page.pieces)
            cursor = page.cursor

        assert whole.cursor is None
        assert whole.attempts[0].row["outcome"] != "delivered"
        assert sorted(from_pages) == sorted(each.delivery_id for each in whole.attempts)
        assert pieces == set(whole.chunk.pieces)
        assert len(pieces) > 1


def test_buses_have_their_partitions(api: EventBridgeClient, delivered: Server) -> None:
    """And their rules, lag and flow; the command line prints the same document."""
    orders = api.get("buses", "orders")
    printed = json.loads(delivered.installation.run("buses", "show", "orders", "--json"))

    assert (orders["source"], orders["topics"], orders["rules"]) == ("embedded", ["placed", "paid"], 2)
    assert {each["lag"] for each in orders["partitions"]} == {orders["lag"]} == {0}
    assert (printed | {"flows": []}, len(printed["flows"])) == (orders | {"flows": []}, len(orders["flows"]))
    assert {tuple(each) for each in printed["flows"]} == {tuple(each) for each in orders["flows"]}
    assert orders in api.get("buses")["buses"]
    with pytest.raises(ApiError, match="404 not_found"):
        api.get("buses", "order")


def test_replays_match_the_command_line(api: EventBridgeClient, delivered: Server) -> None:
    """The list is the same, except for the outcomes of deliveries."""
    found = api.get("replays")
    printed = json.loads(delivered.installation.run("replays", "list", "--json"))

    assert [(each["replay_id"], each["state"]) for each in found["replays"]] == [
        (each["replay_id"], each["state"]) for each in printed
    ]
    assert found["next"] is None
    with pytest.raises(ApiError, match="404 not_found"):
        api.get("replays", "ff")


@pytest.mark.parametrize("path", ["/v1/batches", "/v1/dead-letters", "/v1/events"])
def test_an_invalid_cursor_is_a_problem(path: str, reader: httpx.Client) -> None:
    """The problem says where to get a cursor."""
    response = reader.get(path, params={"cursor": "next"})

    assert (response.status_code, "not a cursor" in response.json()["detail"]) == (400, True)
