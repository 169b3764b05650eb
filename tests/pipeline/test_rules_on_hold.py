"""A budgeted rule that cannot be routed alone is put on hold, and everything else continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pipeline.budgeted import BudgetedSite, Crashing, Order, router, waiting

from eventbridge.errors import SparkError
from eventbridge.pipeline.deliver import deliver_batch, deliver_deferred_matches
from eventbridge.pipeline.retry.deferred import due_deferred_matches, plan_deferred_matches
from eventbridge.pipeline.retry.plan import settle_stale
from eventbridge.repair.audit import audit
from eventbridge.routing.job import RouteJob, RuleShare, SliceResult, Task


def test_a_rule_that_cannot_be_routed_is_held(budgeted_site: BudgetedSite, order: Order) -> None:
    """A rule whose worker dies is put on hold after two separate tries; others continue, and a new file releases it."""
    budgeted_site.publish(order, 10, 10)
    runtime = budgeted_site.runtime()
    crashing = Crashing(runtime)
    deliver_batch(runtime, "orders", crashing, budgeted_site.stop)
    budgeted_site.publish(order, 10, 10, 10)
    deliver_batch(runtime, "orders", crashing, budgeted_site.stop)

    assert crashing.shares == 2
    assert budgeted_site.lines("CHEAP") == ["0", "1", "0", "1", "2"]
    assert "the worker exited unexpectedly" in runtime.ledger.rules.list_on_hold()["expensive"].reason
    assert waiting(runtime) == [("route_failed", "on_hold", 2), ("on_hold", "on_hold", 3)]
    assert plan_deferred_matches(runtime) is None
    assert audit(runtime).differences == ()
    budgeted_site.program("$.id again")
    crashing.fixed = True
    deliver_deferred_matches(runtime, "orders", crashing, budgeted_site.stop)

    assert budgeted_site.lines("EXPENSIVE") == ["0", "1", "0", "1", "2"]
    assert waiting(runtime) == []
    assert audit(runtime).differences == ()


class Killing(Crashing):
    """A router whose Spark ends while it routes the rule `expensive`, and is restarted for the next job."""

    dead = False

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        if self.dead:
            self.dead = False
            raise SparkError("Spark does not respond")
        self.dead = any(isinstance(task, RuleShare) for task in tasks)
        return super().route_slices(job, tasks)


def test_a_rule_that_ends_spark_itself_is_held(budgeted_site: BudgetedSite, order: Order) -> None:
    """If Spark ends three times while it routes a rule, the rule is put on hold and the rest continues."""
    budgeted_site.publish(order, 10, 10)
    runtime = budgeted_site.runtime()
    killing = Killing(runtime)
    for _ in range(3):
        with pytest.raises(SparkError):
            deliver_batch(runtime, "orders", killing, budgeted_site.stop)
        assert runtime.ledger.rules.list_on_hold() == {}

    deliver_batch(runtime, "orders", killing, budgeted_site.stop)

    assert killing.shares == 3
    assert budgeted_site.lines("CHEAP") == ["0", "1"]
    assert "a Spark server that worked beforehand" in runtime.ledger.rules.list_on_hold()["expensive"].reason
    assert waiting(runtime) == [("route_failed", "on_hold", 2)]
    assert audit(runtime).differences == ()


def test_deferred_matches_that_end_spark_hold_their_rule_over_several_batches(
    budgeted_site: BudgetedSite, order: Order, clock: Any
) -> None:
    """A batch with the deferred matches is abandoned with its run, and its tries count in the next batch too."""
    budgeted_site.program("loop")
    budgeted_site.publish(order, 10, 10, poison=[0])
    runtime = budgeted_site.runtime()
    deliver_batch(runtime, "orders", router(runtime), budgeted_site.stop)
    killing = Killing(runtime)
    for _ in range(3):
        clock.now = max(clock.now, due_deferred_matches(runtime) or clock.now)
        with pytest.raises(SparkError):
            deliver_deferred_matches(runtime, "orders", killing, budgeted_site.stop)
        clock.advance(60 + 30 + 1)
        settle_stale(runtime)
    clock.advance(600)

    deliver_deferred_matches(runtime, "orders", killing, budgeted_site.stop)

    assert killing.shares == 3
    assert waiting(runtime) == [("route_failed", "on_hold", 2)]
    assert audit(runtime).differences == ()
