"""Budgeted rules: events over the budget are routed later, in the slow lane, and every batch is reconciled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from pipeline.budgeted import RULES, BudgetedRuntime, BudgetedSite, Order, landed, router, settled, waiting
from stored import dead_letters

from eventbridge.errors import ReconciliationError, UserError
from eventbridge.model import rowset
from eventbridge.model.file_detail import RoutedShare
from eventbridge.model.pending import DeferredMatch
from eventbridge.pipeline.commit.reconciliation import reconciliation_of
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_batch, deliver_deferred_matches
from eventbridge.pipeline.retry.deferred import due_deferred_matches, plan_deferred_matches
from eventbridge.pipeline.retry.plan import settle_stale
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.job import RouteJob, RuleShare, Slice, SliceResult, Task
from eventbridge.routing.sql_results import SqlResult, write_sql_results
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.testing.poison import route_with_poison


def test_a_budgeted_rule_within_its_budget_is_delivered_like_any_other(
    budgeted_site: BudgetedSite, order: Order
) -> None:
    """All matching events of the rule are delivered to all its targets in the same batch, and none is deferred."""
    budgeted_site.publish(order, 1, 10, 20, 3, 30)
    runtime = budgeted_site.runtime()

    batch_id = deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)

    assert budgeted_site.lines("EXPENSIVE") == budgeted_site.lines("MORE") == ["1", "2", "4"]
    assert budgeted_site.lines("CHEAP") == ["0", "1", "2", "3", "4"]
    assert runtime.ledger.deferred_matches.all() == []
    assert runtime.ledger.batches.get(batch_id or "").state == "committed"
    assert audit(runtime).differences == ()


def test_a_program_that_loops_delays_no_other_rule(budgeted_site: BudgetedSite, order: Order) -> None:
    """The other rules' events are delivered in the same batch; the looping rule's rest becomes a deferred match."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, *[10] * 30, poison=[12])
    runtime = budgeted_site.runtime()

    began = time.process_time()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    took = time.process_time() - began

    assert budgeted_site.lines("CHEAP") == [str(number) for number in range(30)]
    assert budgeted_site.lines("EXPENSIVE") == [str(number) for number in range(12)]
    assert waiting(runtime) == [("budget", "scheduled", 18)]
    assert took < 5
    assert audit(runtime).differences == ()


def test_a_rule_that_is_behind_costs_the_others_one_budget_once(budgeted_site: BudgetedSite, order: Order) -> None:
    """While deferred matches of a rule wait, its next shares are deferred unseen, and its events keep their order."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    budgeted_site.publish(order, 10, 10, 10)

    class Asked(InProcessRouter):
        tasks: list[Task]

        def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
            self.tasks = [*getattr(self, "tasks", []), *tasks]
            return super().route_slices(job, tasks)

    asked = Asked(runtime.store, route_with_poison)
    deliver_batch(runtime, "orders", asked, budgeted_site.stop)

    assert all(isinstance(task, Slice) for task in asked.tasks)
    assert waiting(runtime) == [("budget", "scheduled", 2), ("behind", "scheduled", 3)]
    assert audit(runtime).differences == ()


def test_deferred_matches_are_routed_in_the_slow_lane_until_none_is_left(
    budgeted_site: BudgetedSite, order: Order, clock: Any
) -> None:
    """An event that takes a whole budget by itself fails (`transform_failed`); all others are delivered, in order."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, *[10] * 8, poison=[2, 5])
    runtime = budgeted_site.runtime()

    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    batches = 0
    while (due_at := due_deferred_matches(runtime)) is not None:
        clock.now = max(clock.now, due_at)
        deliver_deferred_matches(runtime, "orders", router(runtime), budgeted_site.stop)
        batches += 1

    assert batches == 4
    assert budgeted_site.lines("EXPENSIVE") == budgeted_site.lines("MORE") == ["0", "1", "3", "4", "6", "7"]
    assert waiting(runtime) == []
    records = sorted((row["event_id"], row["target"], row["reason"]) for row in dead_letters(runtime))
    assert records == [(number, target, "transform_failed") for number in "25" for target in ("lines", "more")]
    chunks = [
        chunk
        for batch in runtime.ledger.batches.find(limit=None)
        for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)
    ]
    kinds = {batch.batch_id: batch.kind for batch in runtime.ledger.batches.find(limit=None)}
    assert {chunk.pool for chunk in chunks if kinds[chunk.batch_id] == "retry"} == {"eventbridge.retry"}
    reconciliation = audit(runtime)
    assert reconciliation.differences == ()
    assert reconciliation.deliveries["expensive/lines"] == {
        "matched": 8,
        "delivered": 6,
        "dead_lettered": 2,
        "pending": 0,
    }


def test_a_program_that_fails_is_a_dead_letter_like_any_other(budgeted_site: BudgetedSite, order: Order) -> None:
    """A transform that fails for one event affects no other event."""
    budgeted_site.program("fail")
    budgeted_site.publish(order, 10, 10, 10, poison=[1])
    runtime = budgeted_site.runtime()

    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)

    assert budgeted_site.lines("EXPENSIVE") == ["0", "2"]
    assert [(row["event_id"], row["detail"]) for row in dead_letters(runtime)] == [("1", "it said so")] * 2


def test_a_program_that_fixes_itself_is_used_for_what_waits(budgeted_site: BudgetedSite, order: Order) -> None:
    """Deferred matches are routed by the current rule file."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    budgeted_site.program("$.id")

    deliver_deferred_matches(runtime, "orders", router(runtime), budgeted_site.stop)

    assert budgeted_site.lines("EXPENSIVE") == ["0", "1", "2"]
    assert waiting(runtime) == []
    assert audit(runtime).differences == ()


def test_a_deferred_match_that_is_too_old_ends_as_a_dead_letter(
    budgeted_site: BudgetedSite, order: Order, clock: Any
) -> None:
    """Deferred matches past the longest maximum age of the rule's targets are dead-lettered untried, each by name."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    clock.advance(24 * 3600 + 1)

    deliver_deferred_matches(runtime, "orders", router(runtime), budgeted_site.stop)

    records = [(row["event_id"], row["target"], row["reason"]) for row in dead_letters(runtime, whole=True)]
    assert records == [(number, target, "maximum_event_age") for target in ("lines", "more") for number in "012"]
    assert waiting(runtime) == []
    assert audit(runtime).differences == ()


def test_a_disabled_rules_deferred_matches_wait_and_do_not_age(
    budgeted_site: BudgetedSite, order: Order, clock: Any
) -> None:
    """They are on hold while the rule is disabled; that time is not counted when it is enabled again."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    budgeted_site.write_rules(enabled=False)
    assert plan_deferred_matches(runtime) is None
    assert waiting(runtime) == [("budget", "on_hold", 2)]
    clock.advance(48 * 3600)
    assert plan_deferred_matches(runtime) is None
    budgeted_site.write_rules()
    budgeted_site.program("$.id")

    deliver_deferred_matches(runtime, "orders", router(runtime), budgeted_site.stop)

    assert budgeted_site.lines("EXPENSIVE") == ["0", "1"]


def test_a_removed_rules_deferred_matches_are_dead_lettered_after_an_hour(
    budgeted_site: BudgetedSite, order: Order, clock: Any
) -> None:
    """They wait an hour for the rule to return, and then become dead letters with the reason `rule_removed`."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    budgeted_site.write_rules(text=RULES[: RULES.index("  expensive:")])
    assert plan_deferred_matches(runtime) is None
    clock.advance(3599)
    assert plan_deferred_matches(runtime) is None
    clock.advance(2)

    deliver_deferred_matches(runtime, "orders", router(runtime), budgeted_site.stop)

    assert [row["reason"] for row in dead_letters(runtime)] == ["rule_removed"] * 4
    assert waiting(runtime) == []
    assert audit(runtime).differences == ()


def test_deferred_matches_taken_up_by_a_run_that_died_come_back(
    budgeted_site: BudgetedSite, order: Order, clock: Any
) -> None:
    """A batch that was planned and never routed is settled by the next run; its matches are deferred again."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    lost = plan_deferred_matches(runtime) or ""
    assert plan_deferred_matches(runtime) is None
    clock.advance(60 + 30 + 1)

    assert settle_stale(runtime) == [lost]

    assert waiting(runtime) == [("abandoned", "scheduled", 2)]
    assert runtime.ledger.deferred_matches.waiting()[0].tries == 1
    assert audit(runtime).differences == ()


def test_a_rule_that_gets_nowhere_waits_longer_each_time(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """Each batch without progress, except for an event that used its whole budget, doubles the wait."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, *[10] * 4, poison=range(4))
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    waits = []
    for _ in range(3):
        due_at = due_deferred_matches(runtime)
        assert due_at is not None
        clock.now = due_at
        deliver_deferred_matches(runtime, "orders", router(runtime), budgeted_site.stop)
        waits.append((due_deferred_matches(runtime, "orders") or clock()) - clock())

    assert [wait.total_seconds() for wait in waits] == [2, 4, 8]


def test_a_batch_without_one_deferred_event_is_not_reconciled(budgeted_site: BudgetedSite, order: Order) -> None:
    """A deferred match that lacks one of the remaining events stops the commit."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    batch_id = landed(runtime)

    class Forgetful(BudgetedRuntime):
        pass

    genuine = runtime.ledger.chunks.publish

    def forget(batch: str, deadline: Any, chunks: Any, deferred_matches: Sequence[DeferredMatch] = ()) -> bool:

        return genuine(
            batch, deadline, chunks, [replace(each, files=((each.files[0][0], "0-1"),)) for each in deferred_matches]
        )

    runtime.ledger.chunks.publish = forget  # type: ignore[method-assign]
    route(runtime, batch_id, router(runtime))
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)

    with pytest.raises(ReconciliationError, match="expensive: candidate events = routed"):
        commit(runtime, batch_id)


def test_route_of_a_budgeted_rule_may_die_anywhere(
    budgeted_site: BudgetedSite, order: Order, dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Wherever route dies, the next try ends with every event of the budgeted rule routed or deferred, once."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, 10, 1, poison=[1])
    batch_id = landed(budgeted_site.runtime())
    budgeted_site.site.environ["EVENTBRIDGE_ROUTE_RULE_CPU_BUDGET"] = "0.02"

    def stage(runtime: Runtime) -> None:
        expensive = BudgetedRuntime(**vars(runtime))
        route(expensive, batch_id, router(expensive))

    for wreck in dying_everywhere(budgeted_site.site, stage):
        runtime = wreck.reopen(route_rule_cpu_budget=0.02)
        stage(runtime)
        assert waiting(runtime) == [("budget", "scheduled", 2)]
        settled(runtime, batch_id)
        assert audit(runtime).differences == ()


def test_a_rule_with_sql_is_refused_without_spark(site: Any, order: Order) -> None:
    """The router of this process cannot evaluate `where`: its error says what to do, and nothing is recorded."""
    site.write_rules(RULES[: RULES.index("  expensive:")].replace("pattern: {}", "pattern: {}\n    where: 'true'"))
    site.publish(order(0, 10), key="k")
    runtime = site.reopen()
    batch_id = landed(runtime)

    with pytest.raises(UserError, match=r"rule cheap has `where` .* only Spark .* `eventbridge deliver`"):
        route(runtime, batch_id, InProcessRouter(runtime.store))
    assert runtime.ledger.batches.get(batch_id).state == "buffered"


class SqlResultsRouter(InProcessRouter):
    """A router with results of Spark SQL: `where` of every rule keeps events of even rows; or it lies."""

    def __init__(self, runtime: Runtime, *, lies: bool = False) -> None:
        super().__init__(runtime.store)
        self._responses_in = runtime.store
        self._lies = lies

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        for result in super().route_slices(job, [self._with_results(task) for task in tasks]):
            lies = self._lies and isinstance(result.detail, RoutedShare)
            yield structs.replace(result, detail=structs.replace(result.detail, rejected=())) if lies else result

    def _with_results(self, task: Task) -> Task:
        if not isinstance(task, RuleShare):
            return task
        places = [(file, row) for file, rows in task.files for row in rowset.decode(rows)]
        path = f"deliveries/sql/responses-{task.rule}.parquet"
        write_sql_results(
            self._responses_in,
            path,
            {budgeted_site: SqlResult(kept=budgeted_site[1] % 2 == 0) for budgeted_site in places},
        )
        return structs.replace(task, results=path)


WITH_WHERE = RULES[: RULES.index("  expensive:")].replace("pattern: {}", "pattern: {}\n    where: 'true'")


def test_events_that_where_rejected_are_in_the_reconciliation(site: Any, order: Order) -> None:
    """The manifest counts routed events that `where` rejected, and the audit checks them."""
    site.write_rules(WITH_WHERE.replace("CHEAP", str(site.folder / "cheap")))
    site.publish(*[order(number) for number in range(5)], key="k")
    runtime = site.reopen()

    batch_id = deliver_batch(runtime, "orders", SqlResultsRouter(runtime), Stop()) or ""

    (path,) = runtime.store.list("manifests/")
    assert json.loads(runtime.store.get(path))["rejected"]["cheap"][0] == 2
    reconciliation = reconciliation_of(runtime, runtime.ledger.batches.get(batch_id))
    assert (
        reconciliation.routed["cheap"].count,
        reconciliation.admitted["cheap"].count,
        reconciliation.rejected["cheap"].count,
    ) == (5, 3, 2)
    assert audit(runtime).differences == ()


def test_a_batch_is_not_reconciled_if_an_event_is_neither(site: Any, order: Order) -> None:
    """Routed events that neither have deliveries nor were rejected are lost, so the batch is not reconciled."""
    site.write_rules(WITH_WHERE.replace("CHEAP", str(site.folder / "cheap")))
    site.publish(*[order(number) for number in range(5)], key="k")
    runtime = site.reopen()

    with pytest.raises(ReconciliationError, match="cheap: routed = admitted \\+ rejected"):
        deliver_batch(runtime, "orders", SqlResultsRouter(runtime, lies=True), Stop())
