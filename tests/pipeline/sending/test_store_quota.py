"""The quota of the store: its content is measured, ingestion stops and resumes by it, and retention frees space."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, http, operational_events, rules
from pipeline.modes import deliver_all

from eventbridge.dead_letters.redrive_plan import begin_redrive, plan_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.model.batch import Batch
from eventbridge.model.storage import Area
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.replay.plan import begin_replay, plan_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.runtime.quotas import storage_refusal
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.upkeep.maintain import maintain
from eventbridge.views.status import status

TARGETS = {"crm": "/healthy/crm", "dead": http(REFUSED, retry="{policy: custom, max_retries: 0}")}
ROOMY = 1 << 40


def delivered(sending: Sending, orders: int = 2) -> Batch:
    """Deliver orders under a quota that is not reached; return their batch."""
    sending.begin(orders, settings={"store_max_size": ROOMY}, **TARGETS)
    sending.deliver()
    return next(batch for batch in sending.runtime.ledger.batches.find() if batch.kind == "normal")


def counted(runtime: Runtime) -> dict[Area, int]:
    """Return what the ledger says that the store holds, by area."""
    found: dict[Area, int] = {}
    for each in runtime.ledger.store_sizes.total().sizes:
        found[each.area] = found.get(each.area, 0) + each.size
    return found


def measured(runtime: Runtime, *folders: str) -> int:
    """Return what lies in folders of the store."""
    return sum(runtime.store.size(f"{folder}/") for folder in folders)


def test_the_size_of_a_batch_is_counted_at_its_commit(sending: Sending) -> None:
    """By area, as it is measured; what is of no batch was measured at the first look, and is at the next count."""
    delivered(sending)
    runtime = sending.runtime

    found = counted(runtime)
    assert found["archive"] == measured(runtime, "buffer") > 0
    assert found["deliveries"] == measured(runtime, "deliveries", "outcomes", "settlements") > 0
    assert found["dead_letters"] == measured(runtime, "dead_letters") > 0
    maintain(runtime)
    assert runtime.ledger.store_sizes.total().total < runtime.store.size(""), "a count holds for a day"
    sending.site.clock.advance(86_400)
    maintain(runtime)
    assert runtime.ledger.store_sizes.total().total == runtime.store.size("")


def test_without_a_quota_nothing_is_measured(sending: Sending) -> None:
    """Neither at commit nor at a look."""
    sending.begin(2, **TARGETS)
    sending.deliver()

    assert counted(sending.runtime) == {}
    assert status(sending.runtime).store_quota is None


def test_ingestion_stops_at_the_quota_and_resumes_by_itself(sending: Sending) -> None:
    """With an event for each; what was published meanwhile waits on the bus, and is delivered."""
    delivered(sending)
    held = sending.runtime.ledger.store_sizes.total().total
    sending.publish(1)

    full = sending.site.reopen(store_max_size=held)
    assert listen(full, RUNNER) is None
    stop = full.ledger.ingestion.current_stop()
    assert (stop.cause, "EVENTBRIDGE_STORE_MAX_SIZE" in stop.reason) == ("quota", True)
    between = sending.site.reopen(store_max_size=held + 100, store_resume_size=held - 1)
    assert listen(between, RUNNER) is None
    roomy = sending.site.reopen(store_max_size=ROOMY, store_resume_size=held)
    deliver_all(roomy, RUNNER)

    assert roomy.ledger.ingestion.current_stop() is None
    stops = [event for event in operational_events(roomy) if event["type"].startswith("ingestion.")]
    assert [(event["type"], event["data"]["cause"]) for event in stops] == [
        ("ingestion.stopped", "quota"),
        ("ingestion.resumed", "quota"),
    ]
    assert len(sending.requests()) == 3


def test_an_owner_at_its_quota_stops_its_own_bus_alone(sending: Sending) -> None:
    """What its bus left is counted, retries too; nothing is taken from it until there is room, and that is reported."""

    def write(stored: str, owner: str = "shop") -> None:
        owned = rules(TARGETS).replace("  orders:\n", f"  orders:\n    owner: {owner}\n", 1)
        sending.write(f"owners: {{shop: {{stored: {stored}}}}}\n{owned}")

    write("1GiB")
    sending.publish(2)
    sending.deliver()
    sending.publish(1)
    (roomy,) = status(sending.runtime).owners
    stored = roomy.stored
    write(str(stored))
    (full,) = status(sending.runtime).owners
    bus = sending.runtime.rule_set().buses["orders"]

    assert stored == sum(counted(sending.runtime).values()) > 1_024
    assert (roomy.full, full.full) == (False, True)
    assert f"the owner's quota is {stored:,}" in storage_refusal(sending.runtime, sending.runtime.rule_set(), bus)
    assert listen(sending.runtime, RUNNER) is None
    write(str(stored), owner="other")
    assert (
        storage_refusal(sending.runtime, sending.runtime.rule_set(), sending.runtime.rule_set().buses["orders"]) == ""
    )
    sending.deliver()
    assert len(sending.requests()) == 3


def test_retention_makes_room_in_the_quota(sending: Sending) -> None:
    """What it takes is subtracted; then ingestion continues without anybody's doing."""
    delivered(sending)
    sending.site.clock.advance(1)
    delivered(sending)
    held = sending.runtime.ledger.store_sizes.total().total
    sending.publish(1)
    quota: dict[str, Any] = {"store_max_size": held, "store_resume_size": held - 1}
    assert listen(sending.site.reopen(**quota), RUNNER) is None

    sending.site.clock.advance(31 * 86_400)
    done = maintain(sending.runtime)

    assert done.batches["archive"] == 2
    assert done.store_bytes == sending.runtime.store.size("")
    assert counted(sending.runtime)["archive"] == measured(sending.runtime, "buffer") == 0
    assert sending.runtime.ledger.store_sizes.total().total == sending.runtime.store.size("") < held
    assert listen(sending.runtime, RUNNER) is not None


def test_a_full_count_finds_uncounted_files(sending: Sending) -> None:
    """Files of lost attempts, and those before there was a quota; `maintain` counts at once in a store that is full."""
    delivered(sending)
    runtime = sending.site.reopen(store_max_size=ROOMY)
    runtime.store.put(layout.deliveries(runtime.ledger.now() - timedelta(days=1), "lost", "try", "0"), bytes(5_000))
    quota = runtime.ledger.store_sizes.total().total
    publish_and_look = sending.site.reopen(store_max_size=quota)
    sending.publish(1)
    assert listen(publish_and_look, RUNNER) is None

    maintain(publish_and_look)

    assert publish_and_look.ledger.store_sizes.total().total == publish_and_look.store.size("") > quota + 4_000
    assert status(publish_and_look).store_quota.used > quota + 4_000


def test_replays_and_redrives_wait_for_room_too(sending: Sending, clock: RunningClock) -> None:
    """A store at its quota takes none of their batches; they are not over, and continue by themselves."""
    delivered(sending)
    runtime = sending.site.reopen(store_max_size=ROOMY)
    now, rules = runtime.ledger.now(), runtime.rule_set()
    replay = begin_replay(
        runtime, WrittenReplayRequest("orders", since="90d", until=None).read(now, rules), "run"
    ).replay_id
    redrive = begin_redrive(runtime, Selection(), "run", rate=None, retransform=False, again=False).redrive_id
    held = runtime.ledger.store_sizes.total().total

    full = sending.site.reopen(store_max_size=held)
    waits = [plan_replay(full, replay), plan_redrive(full, redrive)]
    assert [(each.batch_id, each.wait_until is not None) for each in waits] == [(None, True)] * 2
    assert [each.kind for each in full.ledger.batches.find()] == ["normal"]

    clock.advance(60)
    roomy = sending.site.reopen(store_max_size=ROOMY)
    assert plan_replay(roomy, replay).batch_id is not None
    assert plan_redrive(roomy, redrive).batch_id is not None
    assert roomy.ledger.ingestion.current_stop() is None
