"""Every stage works with the ledger on a PostgreSQL server, even if the server restarts during the stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pipeline.crowd import Crowd
from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, operational_events
from pipeline.streaming_tasks import a_streaming_task, ids, until
from services.cut_proxy import CutProxy
from services.postgresql import Postgresql, postgresql
from stored import dead_letters

from eventbridge import fault_points
from eventbridge.delivery.push import push
from eventbridge.errors import EventBridgeError
from eventbridge.ledger import Ledger
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.server import DatabaseBus

#: Orders that are published in each test.
ORDERS = 40
#: Rules of two runners on one bus; what dies of each is copied to a partition.
CROWDED = """
buses:
  orders:
    source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}
rules:
"""
A_RULE = """
  orders-{name}:
    bus: orders
    runner: {name}
    pattern: {{type: [order.placed]}}
    targets:
      crm: {{type: http, url: "/healthy/crm-{name}", allow_http: true}}
      bad:
        type: http
        url: "/status/400/bad-{name}"
        allow_http: true
        dead_letter_queue: {{type: http, url: "/healthy/dead-letters-{name}", allow_http: true}}
"""


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgresql]:
    """Yield a server of this module's own, which its tests may end."""
    with postgresql() as server:
        yield server


@pytest.fixture
def url(mortal: Postgresql) -> Iterator[str]:
    """Yield the URL of an empty ledger."""
    made = mortal.new_database()
    Ledger.migrate(made)
    yield made
    mortal.drop_database(made)


@pytest.fixture
def sending(sending: Sending, url: str, monkeypatch: pytest.MonkeyPatch) -> Sending:
    """Have the installation's bus where stages look for it: in the ledger's database."""
    site = sending.site

    def bus(name: str = "orders", topics: tuple[str, ...] = ("placed",), partitions: int = 2) -> DatabaseBus:
        return DatabaseBus(url, name, topics=topics, partitions=partitions, clock=site.clock)

    monkeypatch.setattr(site, "bus", bus)
    return sending


def test_a_batch_passes_all_stages(sending: Sending, clock: RunningClock, url: str) -> None:
    """Delivered, refused and delivered by a retry, dead-lettered: every event is accounted for, and the receiver has
    each once.
    """
    runtime = sending.begin(
        ORDERS, settings={"ledger_url": url}, crm="/healthy/crm", late=REFUSED, bad="/status/400/bad"
    )
    sending.deliver()
    sending.rules(crm="/healthy/crm", late="/healthy/late", bad="/status/400/bad")
    clock.advance(2 * 3600)
    sending.deliver()

    reconciliation = audit(runtime)
    received = [request["webhook_id"] for request in sending.requests() if request["path"].startswith("/healthy")]
    assert reconciliation.differences == ()
    assert (
        reconciliation.deliveries["orders/crm"]["delivered"]
        == reconciliation.deliveries["orders/late"]["delivered"]
        == ORDERS
    )
    assert reconciliation.deliveries["orders/bad"]["dead_lettered"] == len(list(dead_letters(runtime))) == ORDERS
    assert len(received) == len(set(received)) == 2 * ORDERS


def test_operational_events_of_two_hosts_meet(sending: Sending, url: str, tmp_path: Path) -> None:
    """Each host reports the dead letters of its batch, and both read both: their bus lies in the ledger's database."""
    here = sending.begin(2, settings={"ledger_url": url}, bad="/status/400/bad")
    sending.deliver()
    elsewhere = sending.site.reopen(ledger_url=url, home=tmp_path / "elsewhere", store_uri=here.settings.store_uri)
    sending.publish(2)
    deliver_until_idle(elsewhere, RUNNER, InProcessRouter(elsewhere.store))

    met = operational_events(elsewhere)
    assert met == operational_events(here)
    assert len({each["data"]["batch_id"] for each in met if each["type"] == "delivery.dead_lettered"}) == 2


def test_a_streaming_task_delivers_as_events_come(sending: Sending, url: str) -> None:
    """Its lease, its batches and the bus lie on the server; each event once, and everything is reconciled."""
    runtime = sending.begin(settings={"ledger_url": url}, crm="/healthy/crm")
    with a_streaming_task(sending):
        for number in range(1, 11):
            sending.publish(2)
            until(lambda number=number: len(sending.requests()) == 2 * number)

    assert runtime.ledger.streaming.lease(RUNNER) is None
    assert {batch.state for batch in runtime.ledger.batches.find()} == {"committed"}
    assert set(ids(sending).values()) == {1}
    assert audit(runtime).differences == ()


def each_push(runtime: Runtime, batch_id: str) -> None:
    """Push every chunk of a batch."""
    for chunk in runtime.ledger.chunks.list_for_batch(batch_id):
        push(runtime, batch_id, chunk.chunk_id)


def routes(runtime: Runtime, batch_id: str) -> None:
    """Route in this process."""
    route(runtime, batch_id, InProcessRouter(runtime.store))


STAGES: dict[str, Callable[[Runtime, str], Any]] = {
    "listen": lambda runtime, _: listen(runtime, RUNNER),
    "buffer": buffer,
    "route": routes,
    "push": each_push,
    "write_dead_letters": write_dead_letters,
    "schedule_retries": schedule_retries,
    "commit": commit,
}


@pytest.mark.parametrize("point", ["ledger.begin", "ledger.execute", "ledger.select", "ledger.commit.done"])
def test_a_server_may_restart_in_the_middle_of_every_stage(
    sending: Sending, mortal: Postgresql, url: str, point: str
) -> None:
    """Each stage, once, where it begins a transaction, is in one, or has committed one: it ends as if nothing were."""
    runtime = sending.begin(
        ORDERS, settings={"ledger_url": url}, crm="/healthy/crm", bad="/status/400/bad", late=REFUSED
    )
    batch_id, restarted = "", []

    for name, stage in STAGES.items():

        def restart(reached: str, name: str = name) -> None:
            if reached == point and name not in restarted:
                restarted.append(name)
                mortal.restart()

        fault_points.install(restart)
        found = stage(runtime, batch_id)
        fault_points.install(None)
        batch_id = batch_id or found

    assert restarted == list(STAGES)
    assert runtime.ledger.batches.get(batch_id).state == "committed"
    reconciliation = audit(runtime)
    assert reconciliation.differences == ()
    assert reconciliation.deliveries["orders/crm"] == {
        "matched": ORDERS,
        "delivered": ORDERS,
        "dead_lettered": 0,
        "pending": 0,
    }
    assert len(sending.requests()) == 2 * ORDERS


def test_two_schedulers_and_eight_workers_at_once(sending: Sending, url: str, tmp_path: Path) -> None:
    """Both plan for every runner, any worker runs any stage: each delivery and copy is sent once, everything is
    reconciled.
    """
    runners = ["north", "south"]
    sending.write(CROWDED + "".join(A_RULE.format(name=name) for name in runners))
    settings = {"ledger_url": url, "batch_max_events": ORDERS // 2, "chunk_max_deliveries": 5}
    runtime = sending.site.reopen(**settings)
    sending.publish(2)
    deliver_until_idle(runtime, runners[0], InProcessRouter(runtime.store))  # what processes import and compile, once
    begun = len(runtime.ledger.batches.find())
    sending.publish(ORDERS - 2)

    ran, stages = Crowd(sending.site, settings, runners, tmp_path / "claims").run()

    batches = runtime.ledger.batches.find(limit=None)
    received = Counter((each["path"], each["webhook_id"]) for each in sending.requests())
    paths = Counter(path for path, _ in received)
    assert {batch.state for batch in batches} == {"committed"}
    assert sum(ran.values()) == stages["commit"] == len(batches) - begun
    assert stages["route"] >= 2 * len(runners)
    assert set(received.values()) == {1}
    kinds = ("healthy/crm", "status/400/bad", "healthy/dead-letters")
    assert paths == {f"/{kind}-{name}": ORDERS for kind in kinds for name in runners}
    assert audit(runtime).differences == ()


def test_half_a_response_of_the_server_costs_a_try(sending: Sending, mortal: Postgresql, url: str) -> None:
    """Connections end within responses: a stage continues by itself, or fails and is run again; everything is
    reconciled.
    """
    with CutProxy(mortal.port) as proxy:
        through = url.replace(f":{mortal.port}/", f":{proxy.port}/")
        sending.begin(ORDERS, settings={"ledger_url": through}, crm="/healthy/crm", bad="/status/400/bad")
        proxy.cut = lambda number: number % 30 == 0
        for _ in range(20):
            with suppress(EventBridgeError):
                sending.deliver()
                break
        proxy.cut = lambda number: False

    ended = sending.site.reopen(ledger_url=url)
    reconciliation = audit(ended)
    assert proxy.done >= 5
    assert {batch.state for batch in ended.ledger.batches.find()} == {"committed"}
    assert reconciliation.differences == ()
    assert reconciliation.deliveries["orders/crm"] == {
        "matched": ORDERS,
        "delivered": ORDERS,
        "dead_lettered": 0,
        "pending": 0,
    }
    assert len({each["webhook_id"] for each in sending.requests()}) == 2 * ORDERS
