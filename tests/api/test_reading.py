"""Read calls return the documents of the command line, to tokens with the scope `read`."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from api.pages import pages_of
from api.server import Server

from eventbridge.api.error_codes import CODES
from eventbridge.client import EventBridgeClient


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/v1/rules", ["rules", "list"]),
        ("/v1/rules/refused", ["rules", "show", "refused"]),
        ("/v1/targets", ["targets", "list"]),
        ("/v1/events/o2", ["events", "why", "o2"]),
        ("/v1/audit", ["audit"]),
    ],
)
def test_a_document_matches_the_command_line(
    path: str, command: list[str], delivered: Server, reader: httpx.Client
) -> None:
    """The API returns what `--json` prints."""
    response = reader.get(path)

    assert response.status_code == 200
    found, printed = response.json(), json.loads(delivered.installation.run(*command, "--json"))
    assert (found["targets"] if isinstance(printed, list) else found) in (printed, printed_page(printed))


def printed_page(printed: Any) -> Any:
    """Return what the command line prints as the only page of a list."""
    return {**printed, "next": None} if isinstance(printed, dict) else printed


def test_status_matches_the_command_line(delivered: Server, api: EventBridgeClient) -> None:
    """Except for its own time."""
    found = api.get("status", batches=3)

    printed = json.loads(delivered.installation.run("status", "--batches", "3", "--json"))
    assert found.keys() == printed.keys()
    assert [found[key] for key in ("partitions", "batches", "pending")] == [
        printed[key] for key in ("partitions", "batches", "pending")
    ]


def test_dead_letters_are_filtered_by_parameters(api: EventBridgeClient) -> None:
    """By reason, with a limit, whole, and by name."""
    both = api.get("dead-letters")
    (one,) = api.get("dead-letters", rule="refused")["dead_letters"]
    first = api.get("dead-letters", limit=1)
    whole = api.get("dead-letters", one["name"])
    exported = api.get("dead-letters", whole=True, limit=500)["dead_letters"]

    assert sorted(each["event_id"] or each["reason"] for each in both["dead_letters"]) == ["malformed", "o2"]
    assert (len(first["dead_letters"]), first["next"] is None, both["next"] is None) == (1, False, True)
    assert json.loads(whole["event"])["id"] == "o2"
    assert whole in exported
    assert sorted(each["name"] for each in exported) == sorted(each["name"] for each in both["dead_letters"])


def test_a_lost_file_hides_no_other_dead_letter(api: EventBridgeClient, delivered: Server) -> None:
    """The list has the dead letters of all other files, and names the lost one."""
    both = api.get("dead-letters")
    lost, *_ = sorted((delivered.installation.folder / "home" / "store" / "dead_letters").rglob("*.parquet"))
    aside = lost.rename(lost.with_suffix(".aside"))
    try:
        found = api.get("dead-letters")
        groups = api.get("dead-letter-groups")
    finally:
        aside.rename(lost)

    (said,) = found["unreadable"]
    assert lost.name in said
    assert [each for each in both["dead_letters"] if each in found["dead_letters"]] == found["dead_letters"]
    assert len(found["dead_letters"]) == 1
    assert (groups["unreadable"], len(groups["groups"]), both["unreadable"]) == ([said], 1, [])


def test_a_file_with_damaged_events_hides_no_other_dead_letter(api: EventBridgeClient, delivered: Server) -> None:
    """A list without events has all dead letters; a list of whole ones has all others, and names the file."""
    damaged, *_ = sorted((delivered.installation.folder / "home" / "store" / "dead_letters").rglob("*.parquet"))
    good = damaged.read_bytes()
    group = pq.ParquetFile(damaged).metadata.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    event = next(column for column in columns if column.path_in_schema == "event")
    last = event.data_page_offset + event.total_compressed_size - 1
    damaged.write_bytes(good[:last] + bytes([good[last] ^ 255]) + good[last + 1 :])
    try:
        listed = api.get("dead-letters")
        whole = api.get("dead-letters", whole=True)
    finally:
        damaged.write_bytes(good)

    assert (len(listed["dead_letters"]), listed["unreadable"]) == (2, [])
    assert len(whole["dead_letters"]) == 1
    (said,) = whole["unreadable"]
    assert damaged.name in said


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/v1/rules/refuse", 404, "refused"),
        ("/v1/events/o9", 404, "o9"),
        ("/v1/dead-letters?reason=Never", 400, "unknown reason 'Never'"),
        ("/v1/dead-letters?limit=0", 422, "limit"),
        ("/v1/events/o1?from=soon", 400, "not a time"),
        ("/v1/audit?batch=ff", 404, "there is no batch 'ff'"),
    ],
)
def test_an_error_is_a_problem(path: str, status: int, said: str, reader: httpx.Client) -> None:
    """By RFC 9457, with the remedy."""
    response = reader.get(path)

    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    assert response.json()["remedy"] == CODES[response.json()["code"]].remedy
    assert said in response.json()["detail"]


def test_payloads_need_the_right_to_see_them(delivered: Server, reader: httpx.Client) -> None:
    """Without the scope, no document and no page has the event's text, and each names the needed scope."""
    (dead_letter,) = reader.get("/v1/dead-letters", params={"rule": "refused"}).json()["dead_letters"]
    paths = [f"/v1/dead-letters/{dead_letter['name']}", "/v1/events/o2", "/v1/schemas/order.placed"]
    shown = [reader.get(path).text for path in paths]
    token = delivered.installation.token("blind", "read", "operate")
    pages = [
        "/event?id=o2",
        f"/dead-letters/{dead_letter['name']}",
        "/rules/refused/test?event=o2",
        "/request?id=o2&rule=refused&target=crm",
        "/targets/refused/crm/try?event=o2",
        pages_of(delivered)["/backtests/{backtest_id}"],
    ]

    with delivered.client(token) as blind, delivered.client() as browser:
        tried = [blind.post("/v1/rules/refused/test", json={"event_id": "o2"}).status_code]
        tried += [blind.post("/v1/targets/refused/crm/send", json={"event_id": "o2"}).status_code]
        hidden = [blind.get(path).text for path in paths]
        browser.post("/page/login", data={"token": token})
        hidden += [browser.get(f"/page{path}").text for path in pages]

    needed = "the scope payloads or, in Airflow, the permission to read task logs"
    assert ("alert(1)" in shown[0], '"values":["2"]' in shown[1]) == (True, True)
    assert [text for text in hidden if "alert(1)" in text or '"values":["' in text] == []
    assert [number for number, text in enumerate(hidden) if needed not in text] == [2]  # a schema's example is null
    assert {each["example"] for each in json.loads(hidden[2])["schemas"][0]["fields"]} == {None}
    assert tried == [403, 403]


def test_reading_needs_the_scope_read(delivered: Server) -> None:
    """401 without a token, 403 with a token to publish; the page asks for a token."""
    paths = ["/v1/status", "/v1/rules", "/v1/targets", "/v1/dead-letters", "/v1/events/o1", "/v1/audit"]
    with (
        delivered.client() as anonymous,
        delivered.client(delivered.installation.token("shop", "publish:*")) as publisher,
    ):
        assert {anonymous.get(path).status_code for path in paths} == {401}
        assert {publisher.get(path).status_code for path in paths} == {403}
