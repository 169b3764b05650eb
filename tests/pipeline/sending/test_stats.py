"""Stats: what commit counts, that it is what the reconciliation says, and that folding and pruning lose nothing of
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pipeline.delivering import RunningClock, Sending, http
from stored import sums_ever

from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.dead_letters.redrive_plan import begin_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.model.file_detail import Spent
from eventbridge.model.stat import BOUNDS_MS, Scope
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.upkeep import maintain as upkeep
from eventbridge.upkeep.maintain import maintain
from eventbridge.upkeep.run import RetentionRun
from eventbridge.views.stats import daily_stats

OUTCOMES = {"delivered": "delivered", "dead_lettered": "dead_lettered", "pending": "pending"}


def counted(runtime: Runtime, scope: Scope) -> dict[str, int]:
    """Return the counts of a scope by outcome, those of no delivery included."""
    found: Counter[str] = Counter()
    for each in sums_ever(runtime.ledger, scope):
        found[each.key.outcome] += each.count
    return dict(found)


def of_targets(runtime: Runtime) -> dict[str, dict[str, int]]:
    """Return the counts of targets, by `<rule>/<target>` and by the reconciliation's names of outcomes."""
    found: dict[str, dict[str, int]] = {}
    for each in sums_ever(runtime.ledger, "target"):
        of = found.setdefault(f"{each.key.rule}/{each.key.target}", dict.fromkeys(OUTCOMES.values(), 0))
        of[OUTCOMES[each.key.outcome]] += each.count
    return found


def test_stats_agree_with_the_reconciliation(sending: Sending, clock: RunningClock) -> None:
    """Delivered and dead-lettered over a batch and the retries of it; pending counts each time."""
    sending.begin(20, b"not json", crm="/healthy/crm", bad="/bad/x", late=http("/flaky/late"))
    runtime = sending.runtime
    sending.deliver()
    clock.advance(4_000)
    sending.deliver()
    clock.advance(4_000)
    sending.deliver()

    reconciliation = audit(runtime)
    assert reconciliation.differences == ()
    found = of_targets(runtime)
    for key, sums in reconciliation.deliveries.items():
        assert {name: found[key][name] for name in ("delivered", "dead_lettered")} == {
            name: sums[name] for name in ("delivered", "dead_lettered")
        }
        matched = sum(
            each.matched for each in sums_ever(runtime.ledger, "target") if f"{each.key.rule}/{each.key.target}" == key
        )
        assert matched == sums["matched"]
    buses = counted(runtime, "bus")
    assert {name: buses[name] for name in ("valid", "malformed")} == {"valid": 20, "malformed": 1}
    assert counted(runtime, "target") == {name: buses[name] for name in counted(runtime, "target")}


def test_latency_bytes_and_cpu_are_counted(sending: Sending) -> None:
    """What was delivered has a time since publishing, its payload's bytes, and the CPU time of what handled it."""
    sending.begin(30, crm="/healthy/crm")
    sending.deliver()

    (stat,) = sums_ever(sending.runtime.ledger, "target")
    assert sum(stat.buckets) == stat.count == stat.matched == 30
    assert 0 < stat.latency < 30 * BOUNDS_MS[-1] * 1_000
    assert stat.size == sum(len(sending.order(number)) for number in range(1, 31))
    (batch,) = sending.runtime.ledger.batches.find()
    routing = sum(file.detail.cpu for file in sending.runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"))
    pushing = sum(chunk.cpu for chunk in sending.runtime.ledger.chunks.list_for_batch(batch.batch_id))
    assert routing > 0
    details = [file.detail for file in sending.runtime.ledger.files.list_for_batch(batch.batch_id, "outcome")]
    sending_in_streaming_task = sum(detail.cpu for detail in details if isinstance(detail, Spent))
    assert pushing + sending_in_streaming_task > 0
    assert (sending_in_streaming_task > 0) == (sending.mode == "streaming")
    assert stat.cpu == routing + pushing + sending_in_streaming_task
    stages = {each.key.outcome: sum(each.buckets) for each in sums_ever(sending.runtime.ledger, "bus")}
    assert stages["stage_prepare"] == stages["stage_push"] == stages["stage_settle"] == 1


def test_redeliveries_are_distinguished_from_matches(sending: Sending) -> None:
    """A redriven dead letter and a copy for a dead letter queue are delivered without being matched."""
    queue = "dead_letter_queue: {type: file, path: /tmp/never}"
    refused = f'{{type: http, url: "/status/400", allow_http: true, {queue}}}'.replace(
        "/tmp/never", str(sending.site.folder / "dead-letters.jsonl")
    )
    sending.begin(3, bad=refused)
    runtime = sending.runtime
    sending.deliver()
    copies = counted(runtime, "bus")["again"]
    sending.rules(bad="/healthy/bad")

    request = begin_redrive(runtime, Selection(target="bad"), "run", rate=None, retransform=False, again=False)
    deliver_redrive(runtime, request.redrive_id, InProcessRouter(runtime.store))

    assert copies == 3
    assert counted(runtime, "bus")["again"] == 6
    matched = sum(each.matched for each in sums_ever(runtime.ledger, "target") if each.key.target == "bad")
    assert (matched, len(sending.requests())) == (3, 6)


def test_the_time_of_each_part_of_a_batch_is_counted(sending: Sending, clock: RunningClock) -> None:
    """From planned to routed, from there to the last push's end, and from there to the commit."""
    batch = sending.routed(2, crm="/healthy/crm")
    clock.advance(10)
    runtime = sending.runtime
    sending.push(batch)
    clock.advance(1_000)
    sending.settle(batch)
    commit(runtime, batch.batch_id)

    took = {each.key.outcome: each.latency / 1e6 for each in sums_ever(runtime.ledger, "bus") if each.latency}
    assert took["stage_prepare"] < 10 <= took["stage_push"] < 1_000
    assert 1_000 <= took["stage_settle"] < 1_060


def test_a_commit_that_dies_anywhere_counts_once(
    sending: Sending, dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Killed at any of its points and run again, the stats are those of the reconciliation."""
    batch = sending.routed(8, crm="/healthy/crm", bad="/bad/x")
    sending.push(batch)
    sending.settle(batch)

    for wreck in dying_everywhere(sending.site, lambda runtime: commit(runtime, batch.batch_id)):
        commit(wreck.runtime, batch.batch_id)

        assert of_targets(wreck.runtime) == {
            "orders/bad": {"delivered": 0, "dead_lettered": 8, "pending": 0},
            "orders/crm": {"delivered": 8, "dead_lettered": 0, "pending": 0},
        }
        assert counted(wreck.runtime, "bus")["valid"] == 8


@pytest.mark.parametrize("days", [1, 9, 100, 1_000])
def test_folding_keeps_every_sum(sending: Sending, clock: RunningClock, days: int) -> None:
    """After days, and years, in which batches are pruned, the sums are what they were."""
    sending.begin(6, crm="/healthy/crm", bad="/bad/x")
    sending.deliver()
    clock.advance(90)
    sending.publish(2)
    sending.deliver()
    before = {scope: sums_ever(sending.runtime.ledger, scope) for scope in upkeep.KEPT}

    clock.advance(timedelta(days=days).total_seconds())
    maintain(sending.runtime)

    assert {scope: sums_ever(sending.runtime.ledger, scope) for scope in upkeep.KEPT} == before
    kept = sending.runtime.ledger.stats.list_between("target", clock() - timedelta(days=2_000), clock())
    assert {each.grain for each in kept} == {1: {"hour"}, 9: {"day"}, 100: {"day"}, 1_000: set()}[days]


def test_the_table_is_bounded(sending: Sending, clock: RunningClock) -> None:
    """Of more rows than are kept, what is younger is folded too, and nothing is lost."""
    sending.begin(crm="/healthy/crm")
    for _ in range(4):
        sending.publish(1)
        sending.deliver()
        clock.advance(120)
    clock.advance(3_600)
    runtime = sending.runtime
    assert runtime.ledger.stats.row_count("target") == 4
    before = sums_ever(runtime.ledger, "target")

    upkeep.fold_stats(RetentionRun(runtime, 60, dry_run=False), max_rows=2)

    assert runtime.ledger.stats.row_count("target") <= 2
    assert sums_ever(runtime.ledger, "target") == before


def test_a_day_of_a_rule_is_what_was_delivered(sending: Sending) -> None:
    """What the command shows: by day and rule, and the events by bus."""
    sending.begin(5, b"not json", crm="/healthy/crm")
    sending.deliver()

    found = daily_stats(sending.runtime, 1, "orders")
    (day,) = found.rules
    assert (day.rule, day.matched, day.delivered, day.pending, day.dead_lettered) == ("orders", 5, 5, 0, 0)
    assert day.cpu_seconds > 0
    assert day.mean_seconds is not None
    (bus,) = daily_stats(sending.runtime, 1).buses
    assert (bus.bus, bus.valid, bus.malformed) == ("orders", 5, 1)
