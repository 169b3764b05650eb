"""A token limited to an owner reads and changes nothing of others by cursors, names and ids that it makes up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from api.server import Installation, Server, order

from eventbridge.model.cursor import write_cursor, write_name_cursor
from eventbridge.runtime.batch_files import cursor_at

RULES = """
buses:
  orders: {owner: shop, source: {type: embedded, start_at: earliest}}
  salaries: {owner: personnel, source: {type: embedded, start_at: earliest}}
rules:
  ship: {bus: orders, owner: shop, pattern: {}, targets: {refused: TARGET}}
  pay: {bus: salaries, owner: personnel, pattern: {}, targets: {bank: TARGET}}
"""
TARGET = '{type: http, url: "http://127.0.0.1:9/", allow_http: true, retry: {policy: custom, max_retries: 0}}'
#: What only the other owner may see: the bus, its rule and target, and the types and subjects of its events.
SECRETS = ("salaries", "personnel", "pay", "bank", "salary.paid", "smith")


@dataclass
class Attacked:
    """A server, a client of the owner `shop`, and cursors of the bus of another owner."""

    server: Server
    shop: httpx.Client
    token: str
    events: str
    letters: str
    batch: str
    ids: tuple[str, ...]

    def page(self, path: str) -> str:
        """Return a page that the owner `shop` gets."""
        with self.server.client() as browser:
            return browser.get(path, headers={"cookie": f"eventbridge_token={self.token}"}).text


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """Two owners with a bus, an event of the same id, a dead letter, a replay and a redrive each."""
    folder = tmp_path_factory.mktemp("owned")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8")
    (folder / "rules" / "orders.yaml").write_text(RULES.replace("TARGET", TARGET))
    for bus, event in (("orders", order(1)), ("salaries", order(1, type="salary.paid", subject="smith"))):
        (folder / f"{bus}.jsonl").write_text(json.dumps(event))
        made.run("events", "publish", bus, str(folder / f"{bus}.jsonl"))
        made.deliver(bus)
    with made.opened() as runtime:
        (archive,) = runtime.ledger.files.newest("buffer", "archive", 10, bus="salaries")
        (letters,) = runtime.ledger.files.newest("dead_letter", "dead_letters", 10, bus="salaries")
    everybody = made.token("everybody", "read", "operate", "payloads")
    token = made.token("shop", "read", "operate", "payloads", "publish:*", owners=["shop"])
    with Server(made) as server, server.client(everybody) as all_of_it, server.client(token) as shop:
        replay = all_of_it.post("/v1/replays", json={"bus": "salaries", "from": "1h", "rules": ["pay"]}).json()
        redrive = all_of_it.post("/v1/redrives", json={"rule": "pay"}).json()
        again = {"bus": "orders", "from": "1h", "rules": ["ship"]}
        made.replay(all_of_it.post("/v1/replays", json=again).json()["replay_id"])
        paused = all_of_it.post("/v1/rules/pay/pause")
        assert paused.status_code == 200, paused.text
        yield Attacked(
            server,
            shop,
            token,
            write_cursor(cursor_at(archive)),
            write_cursor(cursor_at(letters)),
            archive.batch_id,
            (replay["replay_id"], redrive["redrive_id"]),
        )


def revealed(text: str) -> list[str]:
    """Return what a text has of the other owner."""
    return [each for each in SECRETS if each in text]


def test_a_cursor_of_another_bus_finds_no_event(attacked: Attacked) -> None:
    """Its file belongs to a bus that the caller does not see: the list goes on behind it, with the own bus."""
    query = {"bus": "orders", "cursor": attacked.events}
    found = attacked.shop.get("/v1/events", params=query)
    guessed = [attacked.shop.get("/v1/events", params={**query, "subject": each}) for each in ("smith", "jones")]
    page = attacked.page(f"/page/events?bus=orders&cursor={attacked.events}")

    assert (found.status_code, revealed(found.text)) == (200, [])
    assert guessed[0].text == guessed[1].text
    assert "salary.paid" not in page


def test_a_cursor_is_no_key_to_another_kind_of_batch(attacked: Attacked) -> None:
    """A cursor in a replay's batch shows no copies of events, which the list leaves out."""
    with attacked.server.installation.opened() as runtime:
        batches = runtime.ledger.batches.find(limit=100)
        kinds = {each.batch_id: each.kind for each in batches}
        files = runtime.ledger.files.newest("buffer", "archive", 10, bus="orders")
    (copies,) = (each for each in files if kinds[each.batch_id] == "replay")
    found = attacked.shop.get("/v1/events", params={"bus": "orders", "cursor": write_cursor(cursor_at(copies))})

    assert (found.status_code, copies.batch_id in found.text) == (200, False)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/dead-letters?cursor={letters}",
        "/v1/dead-letters?whole=true&cursor={letters}",
        "/v1/dead-letter-groups?cursor={letters}",
        "/v1/dead-letters?cursor={events}",
        "/v1/schemas?bus=orders&cursor={bus}",
        "/v1/replays?cursor={replay}",
        "/v1/redrives?cursor={redrive}",
        "/v1/rules?cursor={rule}",
        "/v1/targets?cursor={target}",
        "/v1/stats?cursor={rule}",
        "/v1/stats",
        "/v1/status",
        "/v1/buses",
        "/v1/events/o1",
        "/v1/events/nothing",
        "/v1/events/o1?bus=nothing",
        "/v1/replays/{of_replay}",
        "/v1/schemas/salary.pai",
        "/v1/rules/pa",
        "/v1/targets/ship/ban",
        "/v1/buses/salarie",
        "/page/dead-letters?cursor={letters}",
        "/page/schemas?bus=orders&cursor={bus}",
        "/page/schemas?cursor={bus}",
        "/page/rules?after=o",
        "/page/targets?after=o",
        "/page/event?id=o1",
        "/page/replays/{of_replay}",
        "/page/replays",
        "/page/redrives",
        "/page",
    ],
)
def test_no_list_and_no_error_names_what_others_own(attacked: Attacked, path: str) -> None:
    """Cursors and ids of others, and wrong names near those of others, reveal nothing; suggestions are own names."""
    replay, redrive = attacked.ids
    path = path.format(
        events=attacked.events,
        letters=attacked.letters,
        bus=write_name_cursor("salaries", "a"),
        replay=write_name_cursor(replay),
        redrive=write_name_cursor(redrive),
        rule=write_name_cursor("o"),
        target=write_name_cursor("pay", "bank"),
        of_replay=replay[:8],
    )
    text = attacked.page(path) if path.startswith("/page") else attacked.shop.get(path).text
    text = text.replace("salary.pai'", "").replace("'pa'", "").replace("'ban'", "").replace("'salarie'", "")

    assert revealed(text) == []
    assert attacked.batch not in text


def test_publishing_names_no_bus_of_others(attacked: Attacked) -> None:
    """A bus of others is as unknown as one that does not exist."""
    batch = {"content-type": "application/cloudevents-batch+json"}
    others, unknown = (
        attacked.shop.post(f"/v1/buses/{bus}/events", json=[order()], headers=batch) for bus in ("salaries", "nothing")
    )

    assert (others.status_code, unknown.status_code) == (404, 404)
    assert others.json()["detail"].replace("salaries", "nothing") == unknown.json()["detail"]
    assert revealed(unknown.text) == []


def test_overrides_of_others_stay(attacked: Attacked) -> None:
    """To resume a rule needs the same right as to pause it."""
    resumed = attacked.shop.post("/v1/rules/pay/resume")
    with attacked.server.installation.opened() as runtime:
        overrides = [(each.rule, each.kind) for each in runtime.ledger.overrides.all()]

    assert (resumed.status_code, overrides) == (404, [("pay", "paused")])


def test_redrives_and_replays_of_others_go_on(attacked: Attacked) -> None:
    """Their ids are as unknown as ids that do not exist."""
    replay, redrive = attacked.ids
    calls = (f"/v1/replays/{replay}/cancel", f"/v1/redrives/{redrive}/cancel")

    assert [attacked.shop.post(each).status_code for each in calls] == [404, 404]


def test_a_lost_file_of_others_is_not_named(attacked: Attacked) -> None:
    """The trace of an own event says nothing of the batch that landed an event of the same id on another bus."""
    with attacked.server.installation.opened() as runtime:
        (archive,) = runtime.ledger.files.newest("buffer", "archive", 10, bus="salaries")
        file = Path(runtime.settings.home) / "store" / archive.path
        content = file.read_bytes()
        file.unlink()
    try:
        found = attacked.shop.get("/v1/events/o1")
        missing = attacked.shop.get("/v1/events/nothing")
    finally:
        file.write_bytes(content)

    assert found.status_code == 200
    assert attacked.batch not in found.text + missing.text
