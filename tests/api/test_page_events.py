"""The list of events: its filters, their errors, and the export of what they find."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from api.server import Server
from api.shop import shop_events, shop_server

from eventbridge.dead_letters.redrive_plan import plan_redrive
from eventbridge.errors import UserError
from eventbridge.views import event_search
from eventbridge.views.event_condition import read_condition
from eventbridge.views.event_search import EventQuery, FoundEvent, event_page, placed_page, statuses_of
from eventbridge.views.event_status import status_of_event
from eventbridge.views.trace.explain import why

#: The status of each event of the shop.
STATUS = {
    "refund-0": "dead_lettered",
    "refund-1": "dead_lettered",
    "o3": "delivered",
    "o150": "pending",
    '=HYPERLINK("http://evil")': "delivered",
    "o9": "unmatched",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of the shop."""
    with shop_server(tmp_path_factory.mktemp("shop")) as running:
        yield running


@pytest.fixture(scope="module")
def seeing(shop: Server) -> Iterator[httpx.Client]:
    """A browser whose user may see payloads."""
    with shop.client() as browser:
        browser.post("/page/login", data={"token": shop.installation.token("seeing", "read", "payloads")})
        yield browser


@pytest.fixture(scope="module")
def blind(shop: Server) -> Iterator[httpx.Client]:
    """A browser whose user may not see payloads."""
    with shop.client() as browser:
        browser.post("/page/login", data={"token": shop.installation.token("blind", "read")})
        yield browser


def listed(page: httpx.Response) -> set[str]:
    """Return the ids of the events on a page."""
    return {
        each.replace("&#34;", '"') for each in re.findall(r"<tr data-preview=[^>]*><td><a [^>]*>([^<]*)</a>", page.text)
    }


def test_events_are_found_by_what_became_of_them(seeing: httpx.Client) -> None:
    """By status, by rule, and by the status of one rule's deliveries."""
    found = {status: listed(seeing.get("/page/events", params={"status": status})) for status in STATUS.values()}
    of_rule = {
        text: listed(seeing.get(f"/page/events?{text}"))
        for text in (
            "rule=refunds",
            "rule=all-orders&status=delivered&type=order.refunded",
            "rule=refunds&status=unmatched",
        )
    }

    assert found == {status: {name for name in STATUS if STATUS[name] == status} for status in STATUS.values()}
    assert of_rule == {
        "rule=refunds": {"refund-0", "refund-1"},
        "rule=all-orders&status=delivered&type=order.refunded": {"refund-0", "refund-1"},
        "rule=refunds&status=unmatched": set(STATUS) - {"refund-0", "refund-1"},
    }


def test_events_are_found_by_a_condition_on_their_data(seeing: httpx.Client, blind: httpx.Client) -> None:
    """Written as a comparison or as in a pattern; without the right to see payloads, it is refused."""
    conditions = {
        "$.data.amount > 100": {"o150"},
        "$.data.amount = 5": {"refund-0", "refund-1"},
        "$.type != order.placed": {"refund-0", "refund-1", "o9"},
        '$.id [{"prefix": "refund-"}]': {"refund-0", "refund-1"},
        "$.data.discount": set(),
        "$.data.amount": set(STATUS),
    }
    found = {text: listed(seeing.get("/page/events", params={"pattern": text})) for text in conditions}
    refused = blind.get("/page/events", params={"pattern": "$.data.amount > 100"})

    assert found == conditions
    assert (refused.status_code, "Condition" in blind.get("/page/events").text) == (403, False)


def test_api_and_command_find_events_by_the_filters_of_the_page(shop: Server, seeing: httpx.Client) -> None:
    """Status, rule and condition; a wrong one is refused with the words of the page."""
    filters = [
        {"status": "dead_lettered"},
        {"rule": "refunds"},
        {"rule": "refunds", "status": "unmatched", "type": "order.placed"},
        {"condition": "$.data.amount > 100"},
    ]
    with shop.client(shop.installation.token("finder", "read", "payloads")) as api:
        by_api = [
            {each["event_id"] for each in api.get("/v1/events", params=wanted).json()["events"]} for wanted in filters
        ]
        refused = [
            api.get("/v1/events", params=wanted) for wanted in ({"status": "lost"}, {"condition": "$.data.amount >"})
        ]
    by_page = [
        listed(
            seeing.get("/page/events", params={name.replace("condition", "pattern"): wanted[name] for name in wanted})
        )
        for wanted in filters
    ]
    options = [[part for name in wanted for part in (f"--{name}", wanted[name])] for wanted in filters]
    by_command = [
        {each["event_id"] for each in json.loads(shop.installation.run("events", "find", *each, "--json"))}
        for each in options
    ]

    assert by_api == by_page == by_command
    assert [len(each) for each in by_api] == [2, 2, 3, 1]
    assert [each.status_code for each in refused] == [400, 400]
    assert ["unknown status 'lost'" in refused[0].text, "no value after >" in refused[1].text] == [True, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data.amount > 1", "a path must begin with $"),
        ("$.data..amount", "it leads to more than one value"),
        ("$.dta.amount = 1", "Did you mean $.data?"),
        ("$.data.amount >", "there is no value after >"),
        ("$.data.amount > many", "'many' is not a number"),
        ("$.data.amount ~ 1", "'~ 1' after $.data.amount is not a comparison"),
        ("$.data.lines[0] = 1", "any element may meet the condition"),
        ('$.data.amount [{"numerc": [">", 1]}]', 'Did you mean "numeric"?'),
        ("$.data.name = {", "is not a JSON value"),
        ("$.data.name [", "is not a list of conditions in JSON"),
        ("$." + "a" * 500, "at most 500 are allowed"),
        ("$.data.n = " + "[" * 400, "is not a JSON value"),
    ],
)
def test_a_wrong_condition_is_explained(text: str, said: str) -> None:
    """The error names what is wrong, and what to write."""
    with pytest.raises(UserError) as error:
        read_condition(text)

    assert said in str(error.value)


def test_a_wrong_filter_is_shown_again_with_its_error(seeing: httpx.Client) -> None:
    """The page keeps what was typed."""
    condition = seeing.get("/page/events", params={"pattern": "$.data.amount >"})
    status = seeing.get("/page/events?status=lost")

    assert 'value="$.data.amount &gt;"' in condition.text
    assert "there is no value after &gt;" in condition.text
    assert "unknown status &#39;lost&#39;. Statuses: unmatched" in status.text
    assert listed(condition) == listed(status) == set()


def test_the_bus_of_the_newest_batch_is_preselected(seeing: httpx.Client) -> None:
    """Only while nothing is filtered: a search for a type covers every bus."""
    first, found = seeing.get("/page/events").text, seeing.get("/page/events?type=order.placed").text

    assert "<option selected>orders</option>" in first
    assert "<option selected>orders</option>" not in found


@pytest.mark.parametrize(
    "query",
    [EventQuery(), EventQuery(status="delivered"), EventQuery(condition=read_condition("$.data.amount < 10"))],
    ids=["all", "status", "condition"],
)
def test_the_newest_event_of_a_batch_comes_first_on_every_page(shop: Server, query: EventQuery) -> None:
    """Over the files of the batch together; pages of one event make up the same list."""
    with shop.installation.opened() as runtime:
        whole = event_page(runtime, query, 100)
        times = [each.published_at for each in whole.events]
        one_by_one: list[FoundEvent] = []
        cursor: str | None = ""
        while cursor is not None:
            page = event_page(runtime, query, 1, cursor or None)
            one_by_one += page.events
            cursor = page.cursor

    assert times == sorted(times, reverse=True)
    assert one_by_one == list(whole.events)
    assert len(times) > 1
    assert query != EventQuery() or len({each.partition_id for each in whole.events}) > 1


def test_a_condition_reads_a_bounded_number_of_events(shop: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends after some events, even if none meets the condition, and the next page continues there."""
    monkeypatch.setattr(event_search, "PAGE_BODIES", 2)
    monkeypatch.setattr(event_search, "_BODIES_AT_ONCE", 2)
    query = EventQuery(condition=read_condition("$.data.amount = 5"))
    with shop.installation.opened() as runtime:
        sizes: list[int] = []
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = event_page(runtime, query, 10, cursor or None)
            found += [each.event_id for each in page.events]
            sizes.append(len(page.events))
            cursor = page.cursor

    assert sorted(found) == ["refund-0", "refund-1"]
    assert (len(sizes) >= 3, max(sizes) <= 2) == (True, True)


def test_a_replay_is_a_badge_on_the_original(shop: Server) -> None:
    """The replayed event is listed once; who may not see all rules of the replay does not see its name either."""
    with shop.api(shop.installation.token("replayer", "read", "payloads", "operate")) as api:
        wanted = {"bus": "orders", "from": "1h", "rules": ["all-orders"], "pattern": {"id": ["o3"]}}
        replay = api.post("replays", body=wanted)["replay_id"]
    shop.installation.replay(replay)
    with shop.installation.opened() as runtime:
        viewers = (runtime, runtime.restrict_to_owners(["finance"]))
        pages = [placed_page(viewer, EventQuery(bus="orders"), 100) for viewer in viewers]
        badges = [
            {
                each.event_id: status.replays
                for each, status in zip(page.events, statuses_of(page), strict=True)
                if status and status.replays
            }
            for page in pages
        ]

    assert badges == [{"o3": (replay,)}, {}]
    assert "o3" in {each.event_id for each in pages[1].events}


def test_what_is_filtered_is_exported(seeing: httpx.Client, blind: httpx.Client) -> None:
    """As JSON Lines and as CSV, with the events as they arrived; without the right, with attributes only."""
    lines = seeing.get("/page/events/export?type=order.refunded")
    rows = seeing.get("/page/events/export?status=unmatched&format=csv")
    hidden = [blind.get(f"/page/events/export?format={each}") for each in ("jsonl", "csv")]
    exported = [json.loads(each) for each in lines.text.splitlines()]

    assert sorted(exported[0]) == sorted(
        ["event_id", "type", "source", "published_at", "arrived_at", "status", "rules", "batch_id", "event"]
    )
    assert {(each["event_id"], each["status"], each["rules"]) for each in exported} == {
        ("refund-0", "dead_lettered", 2),
        ("refund-1", "dead_lettered", 2),
    }
    assert [each["event"] for each in sorted(exported, key=lambda each: each["event_id"])] == shop_events()[:2]
    assert [each["event_id"] for each in csv.DictReader(rows.text.splitlines())] == ["o9"]
    assert lines.headers["content-disposition"] == 'attachment; filename="events.jsonl"'
    assert ["amount" in each.text for each in hidden] == [False, False]
    assert [len(each.text.splitlines()) for each in hidden] == [len(STATUS), len(STATUS) + 1]


def test_no_cell_of_an_export_is_a_formula(seeing: httpx.Client) -> None:
    """A text that a spreadsheet would evaluate gets an apostrophe in front; JSON Lines keep it as it is."""
    rows = csv.DictReader(seeing.get("/page/events/export?format=csv").text.splitlines())
    lines = seeing.get("/page/events/export").text.splitlines()

    (name,) = (each["event_id"] for each in rows if "HYPERLINK" in each["event_id"])
    assert name == '\'=HYPERLINK("http://evil")'
    assert '=HYPERLINK("http://evil")' in {json.loads(each)["event_id"] for each in lines}


def test_an_export_is_bounded(shop: Server, seeing: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the file says that it holds only the first events."""
    from eventbridge.api.page import events

    monkeypatch.setattr(events, "MAX_EXPORTED", 2)
    with shop.installation.opened() as runtime:
        rows, is_complete = events.exported(runtime, events.EventFilters(), bodies=True)
    monkeypatch.setattr(events, "MAX_EXPORTED", 100)
    monkeypatch.setattr(events, "MAX_EXPORT_BYTES", 10)
    with shop.installation.opened() as runtime:
        small, _ = events.exported(runtime, events.EventFilters(), bodies=True)

    assert (len(rows), is_complete, len(small)) == (2, False, 1)
    assert events.file_name("csv", 2, is_complete=False) == "events-first-2.csv"


def test_the_list_and_the_page_of_an_event_agree_while_it_is_redriven(shop: Server, seeing: httpx.Client) -> None:
    """Pending from the plan of the redrive's batch, before the first attempt; afterwards what became of it."""
    shown = []
    with shop.api(shop.installation.token("redriver", "read", "payloads", "operate")) as api:
        redrive_id = api.start_redrive(rule="refunds", error="400").redrive_id
    for step in (lambda: None, lambda: plan(shop, redrive_id), lambda: shop.installation.redrive(redrive_id)):
        step()
        page = seeing.get("/page/event?id=refund-0").text
        listed_as = re.search(
            r">refund-0</a></td>.*?<span class=\"badge[^>]*>([^<]*)<", seeing.get("/page/events").text
        )
        headed = re.search(r'<h1>.*<span class="badge[^>]*>([^<]*)</span></h1>', page)
        assert listed_as
        assert headed
        shown.append((listed_as[1], headed[1], "in-progress" in page))

    assert shown == [
        ("dead-lettered", "dead-lettered", False),
        ("pending", "pending", True),
        ("dead-lettered", "dead-lettered", False),
    ]


def plan(shop: Server, redrive_id: str) -> None:
    """Plan the batch of a redrive, and deliver nothing."""
    with shop.installation.opened() as runtime:
        plan_redrive(runtime, redrive_id)


def test_the_list_and_the_page_of_an_event_agree(shop: Server, seeing: httpx.Client) -> None:
    """Of every event, also if a replay with the same ids delivered it again."""
    with shop.api(shop.installation.token("again", "read", "payloads", "operate")) as api:
        wanted = {
            "bus": "orders",
            "from": "1h",
            "rules": ["refunds"],
            "same_ids": True,
            "pattern": {"id": ["refund-1"]},
        }
        replay = api.post("replays", body=wanted)["replay_id"]
    shop.installation.replay(replay)
    with shop.installation.opened() as runtime:
        page = placed_page(runtime, EventQuery(), 100)
        listed_as = {
            each.event_id: status.status if status else ""
            for each, status in zip(page.events, statuses_of(page), strict=True)
        }
        traced = {name: status_of_event(why(runtime, name).events[0]) for name in listed_as}

    assert traced == listed_as
    assert set(traced.values()) == {"delivered", "dead_lettered", "pending", "unmatched"}
