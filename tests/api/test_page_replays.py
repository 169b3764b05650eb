"""Replays by the page: previewed, started, paused, resumed, cancelled."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import httpx
import pytest
from api.application import application
from api.delivered import delivered_server
from api.pages import OWN, post, without_own_scripts
from api.server import Server


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this module alone, because other tests count deliveries."""
    with delivered_server(tmp_path_factory.mktemp("replayed")) as running:
        yield running


@pytest.fixture(scope="module")
def operator(delivered: Server) -> Iterator[httpx.Client]:
    """A browser whose user may operate."""
    with delivered.client() as browser:
        browser.post(
            "/page/login",
            data={"token": delivered.installation.token("replayer", "read", "payloads", "operate")},
            headers=OWN,
        )
        yield browser


def test_a_replay_is_previewed_and_recorded(delivered: Server, operator: httpx.Client) -> None:
    """The preview shows what would be delivered; the form records the replay, and the page shows the command."""
    form = {"bus": "orders", "from": "1h", "rules": "all-orders", "pattern": '{"id": ["o1"]}'}
    preview = operator.get("/page/replay", params=form).text
    begun = post(operator, "/replay", **form)
    page = begun.headers["location"]
    replay_id = page.rpartition("/")[2]
    running = operator.get(page).text
    listed = operator.get("/page/replays").text
    states = []
    for word in ("pause", "resume", "cancel"):
        post(operator, f"/replays/{replay_id}/{word}")
        states += re.findall(r'<h1>Replay .*<span class="badge [a-z]*">(\w+)</span></h1>', operator.get(page).text)
    ended = operator.get("/page/replays").text

    assert "Archived events read: 4, of which 1 would be replayed" in preview
    assert "all-orders/archive" in preview
    assert (begun.status_code, f"replays resume {replay_id}" in running) == (303, True)
    assert states == ["paused", "running", "cancelled"]
    rows = [each.partition(f"{replay_id}</a>")[2].partition("</tr>")[0] for each in (listed, ended)]
    assert ['role="progressbar" aria-valuenow="0"' in each for each in rows] == [True, False]
    assert ["running" in rows[0], "cancelled" in rows[1]] == [True, True]


def test_a_preview_says_that_it_did_not_read_the_whole_archive(
    delivered: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads only the first files, here none, and names their number."""
    monkeypatch.setattr("eventbridge.api.page.replays.PREVIEW_FILES", 0)
    token = delivered.installation.token("previewer", "read")

    async def previewed() -> str:
        async with application(delivered.installation, monkeypatch) as browser:
            await browser.post("/page/login", data={"token": token}, headers=OWN)
            return (await browser.get("/page/replay", params={"bus": "orders", "from": "1h"})).text

    assert "reads only the first 0 files of the archive" in asyncio.run(previewed())


def test_an_event_is_resent_to_one_target(delivered: Server, operator: httpx.Client) -> None:
    """Its page links to a preview of only this delivery; it is delivered once more."""
    event = operator.get("/page/event?id=o1").text
    links = [each.replace("&amp;", "&") for each in re.findall(r'href="(/page/replay\?[^"]+)"', event)]
    (link,) = [each for each in links if "targets=archive" in each]
    preview = operator.get(link).text
    begun = post(operator, "/replay", **dict(httpx.URL(link).params))
    archive = delivered.installation.folder / "archive.jsonl"
    before = archive.read_text().count('"o1"')
    delivered.installation.replay(begun.headers["location"].rpartition("/")[2])

    assert "1 would be replayed" in preview
    assert archive.read_text().count('"o1"') == before + 1


def test_a_replayed_event_is_listed_once(delivered: Server, operator: httpx.Client) -> None:
    """With the time at which it was published, not with that of the replay."""
    begun = post(operator, "/replay", bus="orders", rules="all-orders", pattern='{"id": ["o0"]}', **{"from": "1h"})
    before = operator.get("/page/events?type=order.placed").text
    delivered.installation.replay(begun.headers["location"].rpartition("/")[2])
    after = operator.get("/page/events?type=order.placed").text

    assert before.count(">o0</a>") == 1
    assert events_of(after) == events_of(before)


def events_of(page: str) -> list[str]:
    """Return the rows of a list of events, without their ages."""
    return re.findall(r"<tr><td>.*</tr>", re.sub(r'<span class="ago">.*?</span>', "", page))


def test_a_form_with_a_wrong_value_is_shown_again(operator: httpx.Client) -> None:
    """With the error and with the input."""
    wrong = operator.get("/page/replay", params={"bus": "orders", "from": "1h", "rate": "fast"}).text
    unknown = operator.get("/page/replay", params={"bus": "orders", "from": "1h", "rules": "al-orders"}).text

    assert ("is not a rate" in wrong, 'value="fast"' in wrong) == (True, True)
    assert "all-orders" in unknown


def test_a_reader_replays_nothing(delivered: Server) -> None:
    """The page does not offer the form, and refuses it."""
    with delivered.client() as viewer:
        viewer.post("/page/login", data={"token": delivered.installation.token("onlooker", "read")}, headers=OWN)
        preview = viewer.get("/page/replay?bus=orders&from=1h").text
        refused = post(viewer, "/replay", bus="orders", **{"from": "1h"})

    assert ("would be replayed" in preview, "Start replay" in preview) == (True, False)
    assert refused.status_code == 403


def test_a_delivery_is_shown_as_a_curl_command(operator: httpx.Client) -> None:
    """With the URL, the headers and the body by the current rule; markup of the event stays text."""
    event = operator.get("/page/event?id=o2").text
    link = re.findall(r'href="(/page/request\?[^"]+target=crm[^"]+)"', event)[0].replace("&amp;", "&")
    page = operator.get(link).text
    file = operator.get("/page/request?id=o2&rule=all-orders&target=archive")

    assert "curl -X POST http://127.0.0.1:9/nowhere" in page
    assert "webhook-id: " in page
    assert ("<script" in without_own_scripts(page), "&lt;script&gt;" in page) == (False, True)
    assert (file.status_code, "curl commands exist only for the type http" in file.text) == (200, True)


def test_a_dead_letter_shows_that_it_was_redriven(delivered: Server, operator: httpx.Client) -> None:
    """The list shows when, and with which outcome."""
    redriven = re.compile(r"</time> <span class=\"badge bad\">dead-lettered</span></td>")
    before = operator.get("/page/dead-letters?rule=refused&by=letter&tab=redriven").text
    post(operator, "/redrive", rule="refused", again="1")
    with delivered.installation.opened() as runtime:
        newest = max(runtime.ledger.redrives.all(), key=lambda each: each.started_at)
    delivered.installation.redrive(newest.redrive_id)
    after = operator.get("/page/dead-letters?rule=refused&by=letter&tab=redriven").text

    assert redriven.findall(before) == []
    assert len(redriven.findall(after)) == 1
