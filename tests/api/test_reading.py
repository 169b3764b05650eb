"""The API tells what the command line tells, to tokens that may look."""

from __future__ import annotations

import json

import httpx
import pyarrow.parquet as pq
import pytest
from api.pages import pages_of
from api.server import Server


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/rules", ["rules", "show"]),
        ("/rules/refused", ["rules", "show", "refused"]),
        ("/targets", ["targets", "list"]),
        ("/events/o2", ["why", "o2"]),
        ("/audit", ["audit"]),
    ],
)
def test_a_document_is_that_of_the_command_line(
    path: str, command: list[str], told: Server, looking: httpx.Client
) -> None:
    """What `--json` prints is what the API responds with."""
    response = looking.get(path)

    assert response.status_code == 200
    assert response.json() == json.loads(told.installation.run(*command, "--json"))


def test_status_is_that_of_the_command_line(told: Server, looking: httpx.Client) -> None:
    """But for the time at which it was asked."""
    found = looking.get("/status", params={"batches": 3}).json()

    printed = json.loads(told.installation.run("status", "--batches", "3", "--json"))
    assert found.keys() == printed.keys()
    assert [found[key] for key in ("partitions", "batches", "pending")] == [
        printed[key] for key in ("partitions", "batches", "pending")
    ]


def test_dead_letters_are_chosen_by_parameters(looking: httpx.Client) -> None:
    """By reason, at most so many, all of them whole, and one by its name."""
    both = looking.get("/dead-letters").json()
    (one,) = looking.get("/dead-letters", params={"rule": "refused"}).json()["dead_letters"]
    first = looking.get("/dead-letters", params={"limit": 1}).json()
    whole = looking.get(f"/dead-letters/{one['name']}").json()
    exported = looking.get("/dead-letters", params={"whole": True, "limit": 500}).json()["dead_letters"]

    assert sorted(each["event_id"] or each["reason"] for each in both["dead_letters"]) == ["Malformed", "o2"]
    assert (len(first["dead_letters"]), first["more"], both["more"]) == (1, True, False)
    assert json.loads(whole["event"])["id"] == "o2"
    assert whole in exported
    assert sorted(each["name"] for each in exported) == sorted(each["name"] for each in both["dead_letters"])


def test_a_file_that_is_lost_hides_no_other_dead_letter(looking: httpx.Client, told: Server) -> None:
    """The list has those of all other files, and says which one it lacks."""
    both = looking.get("/dead-letters").json()
    lost, *_ = sorted((told.installation.folder / "home" / "store" / "dead_letters").rglob("*.parquet"))
    aside = lost.rename(lost.with_suffix(".aside"))
    try:
        found = looking.get("/dead-letters").json()
        groups = looking.get("/dead-letter-groups").json()
    finally:
        aside.rename(lost)

    (said,) = found["unreadable"]
    assert lost.name in said
    assert [each for each in both["dead_letters"] if each in found["dead_letters"]] == found["dead_letters"]
    assert len(found["dead_letters"]) == 1
    assert (groups["unreadable"], len(groups["groups"]), both["unreadable"]) == ([said], 1, [])


def test_a_file_whose_events_are_damaged_hides_no_other_whole_letter(looking: httpx.Client, told: Server) -> None:
    """A list without events has all dead letters; one of whole ones has those of all other files and says which not."""
    damaged, *_ = sorted((told.installation.folder / "home" / "store" / "dead_letters").rglob("*.parquet"))
    good = damaged.read_bytes()
    group = pq.ParquetFile(damaged).metadata.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    event = next(column for column in columns if column.path_in_schema == "event")
    last = event.data_page_offset + event.total_compressed_size - 1
    damaged.write_bytes(good[:last] + bytes([good[last] ^ 255]) + good[last + 1 :])
    try:
        listed = looking.get("/dead-letters").json()
        whole = looking.get("/dead-letters", params={"whole": True}).json()
    finally:
        damaged.write_bytes(good)

    assert (len(listed["dead_letters"]), listed["unreadable"]) == (2, [])
    assert len(whole["dead_letters"]) == 1
    (said,) = whole["unreadable"]
    assert damaged.name in said


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/rules/refuse", 404, "refused"),
        ("/events/o9", 404, "o9"),
        ("/dead-letters?reason=Never", 400, "unknown reason 'Never'"),
        ("/dead-letters?limit=0", 422, "limit"),
        ("/events/o1?since=soon", 400, "not a time"),
        ("/audit?batch=ff", 404, "there is no batch 'ff'"),
    ],
)
def test_what_cannot_be_told_is_a_problem(path: str, status: int, said: str, looking: httpx.Client) -> None:
    """As RFC 9457 has it, with what to do."""
    response = looking.get(path)

    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    assert said in response.json()["detail"]


def test_payloads_are_for_who_may_see_them(told: Server, looking: httpx.Client) -> None:
    """Without the scope no document and no page holds the event's text, and each says what it takes to see it."""
    (letter,) = looking.get("/dead-letters", params={"rule": "refused"}).json()["dead_letters"]
    paths = [f"/dead-letters/{letter['name']}", "/events/o2", "/schemas/order.placed"]
    shown = [looking.get(path).text for path in paths]
    token = told.installation.token("blind", "read", "operate")
    pages = [
        "/event?id=o2",
        f"/dead-letters/{letter['name']}",
        "/rules/refused/test?event=o2",
        "/request?id=o2&rule=refused&target=crm",
        "/targets/refused/crm/try?event=o2",
        pages_of(told)["/backtests/{backtest_id}"],
    ]

    with told.client(token) as blind, told.client() as browser:
        tried = [blind.post("/rules/refused/test", json={"event_id": "o2"}).status_code]
        tried += [blind.post("/targets/refused/crm/send", json={"event_id": "o2"}).status_code]
        hidden = [blind.get(path).text for path in paths]
        browser.post("/page/login", data={"token": token})
        hidden += [browser.get(f"/page{path}").text for path in pages]

    needed = "the scope payloads or, in Airflow, the permission to read task logs"
    assert ("alert(1)" in shown[0], '"values":["2"]' in shown[1]) == (True, True)
    assert [text for text in hidden if "alert(1)" in text or '"values":["' in text] == []
    assert [number for number, text in enumerate(hidden) if needed not in text] == [2]  # a schema's example is null
    assert {each["example"] for each in json.loads(hidden[2])[0]["fields"]} == {None}
    assert tried == [403, 403]


def test_only_a_token_that_may_look_is_told_anything(told: Server) -> None:
    """401 without one, 403 with one to publish; the page asks for one."""
    paths = ["/status", "/rules", "/targets", "/dead-letters", "/events/o1", "/audit"]
    with told.client() as nobody, told.client(told.installation.token("shop", "publish:*")) as publisher:
        assert {nobody.get(path).status_code for path in paths} == {401}
        assert {publisher.get(path).status_code for path in paths} == {403}
