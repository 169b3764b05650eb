"""Operators use Airflow's own pages, in a real browser on a real Airflow: forms, backfills, pools.

docs/tutorials/operations.md shows its screenshots; `make screenshots` takes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from demo.up import summary
from end_to_end.browser import Browser, browsing
from end_to_end.looks import earlier, takes
from end_to_end.running import RunningEnvironment
from playwright.sync_api import expect

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def browser(operating: RunningEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser window on the environment's Airflow."""
    with browsing(operating.config, tmp_path_factory.mktemp("pictures")) as browser:
        yield browser


def test_events_are_published_by_the_form(operating: RunningEnvironment, browser: Browser) -> None:
    """Events are pasted into the form of `eventbridge_publish_events`; every rule of the bus delivers them."""
    event = {"specversion": "1.0", "source": "/shop", "type": "order.placed", "data": {"id": "A-17"}}
    browser.trigger_form("eventbridge_publish_events")
    browser.fill("bus", "orders")
    browser.fill("events", "\n".join(json.dumps({**event, "id": f"form-{number}"}) for number in range(3)))
    browser.picture("publish-form")
    browser.trigger()

    operating.until("both rules delivered", lambda: delivered(operating) == {"invoices": 3, "accounts": 3})


def test_a_replay_is_triggered_by_the_form(operating: RunningEnvironment, browser: Browser) -> None:
    """The form of `eventbridge_replay_events` delivers the archived events again to one rule, under new ids."""
    operating.until_settled()
    browser.trigger_form("eventbridge_replay_events")
    browser.fill("bus", "orders")
    browser.fill_time("From", "2026/01/01", "00:00")
    browser.choose("rules", "accounts")
    browser.switch_off("dry_run")
    browser.picture("replay-form")
    browser.trigger()

    operating.until("its rule has them twice", lambda: delivered(operating) == {"invoices": 3, "accounts": 6})
    operating.until_settled()
    assert len(set(operating.requests("/healthy/accounts"))) == 6
    assert operating.differences() == []


def test_a_rule_is_tuned_in_admin_pools(operating: RunningEnvironment, browser: Browser) -> None:
    """With 0 slots in its pool, a rule's deliveries wait, and other rules deliver; with slots they are delivered."""
    browser.open("pools")
    browser.set_slots("eventbridge.rule.invoices", 0)
    expect(browser.page.get_by_text("eventbridge.rule.invoices (0 Slots)")).to_be_visible()
    browser.picture("pool-closed")
    operating.publish("orders", range(10))
    operating.until("the other rule delivers", lambda: takes(operating, "/healthy/accounts", 16))
    operating.until("the batch is committed", lambda: operating.open() == [])
    waiting = delivered(operating)["invoices"]

    browser.open("pools")
    browser.set_slots("eventbridge.rule.invoices", 3)
    operating.until("the rule delivers", lambda: takes(operating, "/healthy/invoices", 13))
    operating.until_settled()

    assert waiting == 3
    assert operating.differences() == []


def test_hours_of_archive_are_backfilled(operating: RunningEnvironment, browser: Browser) -> None:
    """The hour has a run and a replay. Marking the run failed cancels the replay; reprocessing it starts another
    one.
    """
    operating.until_settled()
    before = delivered(operating)
    with earlier(operating, 1) as hours:
        browser.backfill_form("eventbridge_replay_archive")
        browser.fill_time("From", f"{hours[0]:%Y/%m/%d}", f"{hours[0]:%H:%M}")
        browser.fill_time("To", f"{hours[1]:%Y/%m/%d}", f"{hours[1]:%H:%M}")
        browser.page.get_by_text("Override parameters on existing runs").click()
        browser.fill("bus", "orders")
        browser.picture("backfill-dialogue")
        browser.choose("rules", "accounts")
        browser.switch_off("dry_run")
        browser.backfill()
        archived = len(set(operating.requests("/healthy/invoices")))
        operating.until(
            "its rule has them again", lambda: delivered(operating)["accounts"] == before["accounts"] + archived
        )
        operating.until("the runs succeed", lambda: set(archive_runs(operating).values()) == {"success"})
        assert {each.state for each in operating.runtime.ledger.replays.all()} == {"done"}

        with closed(operating, "eventbridge.replay"):
            backfill(operating, hours, "completed")
            operating.until(
                "the triggerer waits for them", lambda: waiting(operating) == sorted(archive_runs(operating))
            )
            going_on = [each.replay_id for each in operating.runtime.ledger.replays.all() if each.state == "running"]
            for run in archive_runs(operating):
                operating.airflow.call(
                    "PATCH", f"/dags/eventbridge_replay_archive/dagRuns/{run}", json={"state": "failed"}
                )
            operating.until(
                "they are cancelled", lambda: {state_of(operating, each) for each in going_on} == {"cancelled"}
            )

        backfill(operating, hours, "failed")
        operating.until("the runs succeed", lambda: set(archive_runs(operating).values()) == {"success"})
        operating.until(
            "it is delivered again", lambda: delivered(operating)["accounts"] == before["accounts"] + 2 * archived
        )
    operating.until_settled()
    assert delivered(operating)["invoices"] == before["invoices"]
    assert operating.differences() == []


def backfill(operating: RunningEnvironment, hours: tuple[datetime, datetime], reprocess: str) -> None:
    """Run hours of archive again by Airflow's REST API."""
    conf = {"bus": "orders", "rules": ["accounts"], "dry_run": False}
    operating.backfill("eventbridge_replay_archive", hours, {"reprocess_behavior": reprocess, "dag_run_conf": conf})
    operating.until("the runs exist", lambda: "success" not in archive_runs(operating).values())


@contextmanager
def closed(operating: RunningEnvironment, pool: str) -> Iterator[None]:
    """Set the slots of a pool to 0, and restore them after the block."""
    slots = operating.airflow.call("GET", f"/pools/{pool}")["slots"]
    for now in (0, slots):
        body = {"pool": pool, "slots": now, "include_deferred": False}
        operating.airflow.call("PATCH", f"/pools/{pool}", params={"update_mask": "slots"}, json=body)
        if now == 0:
            yield


def archive_runs(operating: RunningEnvironment) -> dict[str, str]:
    """Return the states of the runs of `eventbridge_replay_archive`."""
    return {run["dag_run_id"]: run["state"] for run in operating.runs("eventbridge_replay_archive")}


def waiting(operating: RunningEnvironment) -> list[str]:
    """Return the runs of `eventbridge_replay_archive` whose triggers the triggerer has started."""
    found = operating.airflow.call(
        "GET", "/dags/eventbridge_replay_archive/dagRuns/~/taskInstances", params={"state": "deferred"}
    )
    runs = sorted(each["dag_run_id"] for each in found["task_instances"])
    return [
        run for run in runs if ") starting" in operating.task_log("eventbridge_replay_archive", run, "wait_for_replay")
    ]


def state_of(operating: RunningEnvironment, replay_id: str) -> str:
    """Return the state of a replay."""
    return operating.runtime.ledger.replays.get(replay_id).state


def delivered(operating: RunningEnvironment) -> dict[str, int]:
    """Return the number of requests that the receiver got for each rule."""
    return {name: len(operating.requests(f"/healthy/{name}")) for name in ("invoices", "accounts")}


def test_the_page_is_used_within_airflow(operating: RunningEnvironment, browser: Browser) -> None:
    """It is at the address that `make up` prints, in Airflow's frame and theme; actions are recorded for Airflow's
    user.
    """
    (address,) = re.findall(r"^  page +(\S+)$", summary(operating.config, 0), re.MULTILINE)
    browser.page.evaluate("localStorage.setItem('theme', 'dark')")
    browser.page.goto(address)
    frame = browser.page.frame_locator("iframe[title='EventBridge']")
    expect(frame.get_by_role("heading", name="Overview")).to_be_visible()
    expect(frame.locator("html")).to_have_attribute("data-theme", "dark")
    browser.picture("page-in-airflow")
    pages = frame.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
    unlike = pages_unlike(browser, pages, "dark")
    browser.page.evaluate("localStorage.setItem('theme', 'light')")
    browser.page.reload()
    expect(frame.locator("html")).to_have_attribute("data-theme", "light")
    unlike += pages_unlike(browser, pages, "light")

    assert len(pages) >= 10
    assert unlike == []
    frame.get_by_role("link", name="Events", exact=True).click()
    expect(frame.get_by_role("heading", name="Events", exact=True, level=1)).to_be_visible()
    browser.picture("page-in-airflow-light")

    frame.get_by_role("link", name="Rules", exact=True).click()
    frame.get_by_role("link", name="invoices").click()
    frame.get_by_role("button", name="Pause", exact=True).click()
    expect(frame.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    overrides = [(each.rule, each.kind, each.set_by) for each in operating.runtime.ledger.overrides.all()]
    frame.get_by_role("button", name="Resume", exact=True).click()
    expect(frame.get_by_role("button", name="Pause", exact=True)).to_be_visible()

    assert overrides == [("invoices", "paused", "admin")]
    assert operating.runtime.ledger.overrides.all() == []
    assert "/plugin/eventbridge/eventbridge/page/rules/invoices" in browser.page.url

    frame.get_by_role("button", name="Backtest the rule").click()
    expect(frame.get_by_role("heading", name="Backtests")).to_be_visible()
    (run,) = operating.runs("eventbridge_backtest_rules")
    assert (run["conf"]["candidate"], run["triggering_user_name"]) == ("invoices", "admin")
    path = f"/dags/eventbridge_backtest_rules/dagRuns/{run['dag_run_id']}"
    operating.airflow.call("PATCH", path, json={"state": "failed"})  # its results are tested elsewhere


def pages_unlike(browser: Browser, pages: list[str], theme: str) -> list[str]:
    """Return the pages that have another theme than Airflow, or that are wider than its frame."""
    frame = browser.page.frame_locator("iframe[title='EventBridge']")
    found = []
    for name in pages:
        link = frame.get_by_role("navigation", name="Pages").get_by_role("link", name=name.split("\n")[0])
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        whole = frame.locator("html")
        wide = whole.evaluate("(each) => each.scrollWidth > each.clientWidth")
        if wide or whole.get_attribute("data-theme") != theme:
            found.append(f"{name}, {theme}{', too wide' if wide else ''}")
    return found


def test_a_push_leads_to_its_deliveries_and_back(operating: RunningEnvironment, browser: Browser) -> None:
    """Its task's link leads to the chunk on the page, which links task and run; the run has a tab with its batch."""
    operating.until_settled()
    found = operating.airflow.call(
        "GET", "/dags/eventbridge_deliver_orders/dagRuns/~/taskInstances", params={"limit": 100}
    )
    pushes = [each for each in found["task_instances"] if each["task_id"] == "push" and each["map_index"] == 0]
    run = pushes[0]["dag_run_id"]
    links = operating.airflow.call(
        "GET", f"/dags/eventbridge_deliver_orders/dagRuns/{run}/taskInstances/push/links", params={"map_index": 0}
    )
    browser.open(links["extra_links"]["Deliveries of this chunk"].lstrip("/"))
    frame = browser.page.frame_locator("iframe[title='EventBridge']")
    expect(frame.get_by_role("heading", name="Chunk 0")).to_be_visible()
    expect(frame.get_by_text("delivered").first).to_be_visible()
    frame.get_by_role("link", name=f"{run}, push 0").click()
    browser.page.wait_for_url("**/tasks/push/mapped/0**")
    browser.page.evaluate("history.back()")
    frame.locator("dd a").first.click()
    frame.get_by_role("link", name=f"eventbridge_deliver_orders, {run}").click()
    browser.page.wait_for_url("**/dags/eventbridge_deliver_orders/runs/**")
    browser.page.get_by_role("link", name="EventBridge batch").click()
    tab = browser.page.frame_locator("iframe[title='EventBridge batch']")
    expect(tab.get_by_text("every event of this batch is accounted for")).to_be_visible()


def test_the_home_page_shows_the_lag(operating: RunningEnvironment, browser: Browser) -> None:
    """A panel of ours below Airflow's own: each bus, and what is not well; its name leads to the page."""
    browser.open("")
    expect(browser.page.get_by_text("orders: lag 0")).to_be_visible()
    expect(browser.page.get_by_text("All targets are healthy")).to_be_visible()
    assert operating.airflow.call("GET", "/plugins/importErrors")["import_errors"] == []
    browser.picture("lag-on-home-page")
    browser.page.get_by_role("link", name="EventBridge", exact=True).last.click()
    expect(
        browser.page.frame_locator("iframe[title='EventBridge']").get_by_role("heading", name="Overview")
    ).to_be_visible()
