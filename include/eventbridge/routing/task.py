"""Route one task, whatever it is: what both kinds of router hand out."""

from __future__ import annotations

from eventbridge.routing.backtest import backtest_slice
from eventbridge.routing.costly_share import route_share
from eventbridge.routing.job import BacktestSlice, RouteJob, Slice, SliceResult, Task
from eventbridge.routing.slice import route_slice
from eventbridge.rule import RuleSet
from eventbridge.store.protocol import Store


def route_task(store: Store, rule_set: RuleSet, job: RouteJob, task: Task) -> SliceResult:
    """Route a slice by all rules, or one rule's share of a batch; or backtest a part of the archive."""
    if isinstance(task, Slice):
        return route_slice(store, rule_set, job, task)
    if isinstance(task, BacktestSlice):
        return backtest_slice(store, rule_set, job, task)
    return route_share(store, rule_set, job, task)
