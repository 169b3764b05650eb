"""Routes a task of any kind, as routers do by default, and provides a router that works in the calling process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from msgspec import structs

from eventbridge.errors import EventBridgeError, SparkError
from eventbridge.model.file_detail import Routed
from eventbridge.routing.backtest import backtest_slice
from eventbridge.routing.budgeted_share import route_share
from eventbridge.routing.job import BacktestSlice, RouteJob, RouteTask, Slice, SliceResult, Task
from eventbridge.routing.slice import route_slice
from eventbridge.rules import RuleSet
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import frozen_rules


def route_task(store: Store, rule_set: RuleSet, job: RouteJob, task: Task) -> SliceResult:
    """Route a slice with all rules, route one rule's share of a batch, or backtest a part of the archive."""
    if isinstance(task, BacktestSlice):
        return backtest_slice(store, rule_set, job, task)
    began = time.process_time()
    route = (
        route_slice(store, rule_set, job, task) if isinstance(task, Slice) else route_share(store, rule_set, job, task)
    )
    return _with_cpu(route, time.process_time() - began)


def _with_cpu(result: SliceResult, seconds: float) -> SliceResult:
    """Add the CPU time that this process spent on a task to the task's result, for the stats."""
    detail = result.detail
    if isinstance(detail, Routed):
        detail = structs.replace(detail, cpu=detail.cpu + round(seconds * 1e6))
    return structs.replace(result, detail=detail)


class InProcessRouter:
    """Routes tasks without Spark, one after the other, with the function `route`.

    If `rules` is None, each job's rules are read from the store.
    """

    def __init__(self, store: Store, route: RouteTask = route_task, rules: RuleSet | None = None) -> None:
        self._store = store
        self._route = route
        self._rules = rules

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Route each task when its result is requested. Raises SparkError for any unexpected error, as Spark does."""
        rules = self._rules or frozen_rules(self._store, job.rule_set)
        for task in tasks:
            yield self._result(rules, job, task)

    def _result(self, rules: RuleSet, job: RouteJob, task: Task) -> SliceResult:
        try:
            return self._route(self._store, rules, job, task)
        except EventBridgeError:
            raise
        except Exception as error:
            raise SparkError(f"{task.slice_id} failed: {type(error).__name__}: {error}") from error
