"""Measures how fast a recovered target receives its pending deliveries, compared with live ones, in one run.

Called by `benchmarks.bench_retry_lane`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from benchmarks.bench_site import RUNNER, Site, measured, site
from benchmarks.compiled_receiver import CompiledReceiver
from rich.console import Console
from rich.table import Table

from eventbridge.model.batch import BatchKind
from eventbridge.pipeline.deliver import deliver_batch, deliver_retries
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.stop import Stop

#: The minimum rate at which a backlog drains, as a share of the live rate.
DRAIN_GOAL = 0.5

_RULE, _TARGET = "drained", "target"
_BYTES = 1024


class _Pass(NamedTuple):
    """Deliveries of one pass, its batches, seconds, CPU-seconds and peak memory."""

    deliveries: int
    batches: int
    wall: float
    cpu: float
    mib: float

    @property
    def per_second(self) -> float:
        return self.deliveries / self.wall


def drain(receiver: CompiledReceiver, count: int) -> bool:
    """Print, for a target of each type, how fast `count` events come through and as many pending ones drain."""
    http = {"type": "http", "allow_http": True, "connection": "signed", "url": receiver.url("/ok/drained")}
    table = Table(title=f"{count:,} deliveries of {_BYTES:,} bytes to one target, live and pending; without Airflow")
    for title in ("target", "what", "batches", "wall s", "CPU s", "per second", "times", "MiB"):
        table.add_column(title, justify="left" if title in ("target", "what") else "right")
    kept = True
    for name in ("http", "file"):
        live, drained = _measure(http if name == "http" else None, count)
        for what, each in (("live, listen to commit", live), ("pending, plan to commit", drained)):
            times = each.per_second / live.per_second
            numbers = [
                f"{each.wall:.1f}",
                f"{each.cpu:.1f}",
                f"{each.per_second:,.0f}",
                f"{times:.2f}",
                f"{each.mib:.0f}",
            ]
            table.add_row(name, what, str(each.batches), *numbers)
        kept = kept and drained.per_second >= DRAIN_GOAL * live.per_second
    Console(width=120).print(table)
    what = f"a backlog drains at at least {DRAIN_GOAL:g} of the live rate"
    print(f"goal: {what}: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


def _measure(target: Mapping[str, Any] | None, count: int) -> tuple[_Pass, _Pass]:
    """Deliver so many events, make as many pending for the same target, and deliver those once it is well."""
    with site(large=False) as installation:
        lines = installation.folder / "lines.jsonl"
        installation.write_rules({_RULE: {_TARGET: target or {"type": "file", "path": str(lines)}}})
        installation.publish(count, _BYTES)
        live = _delivered(installation, "normal", count)
        with closing(installation.open()) as runtime:
            runtime.ledger.targets.set_status(_RULE, _TARGET, "degraded", "this benchmark says so")
        installation.publish(count, _BYTES, count)
        measured(lambda: _batches(installation))
        with closing(installation.open()) as runtime:
            assert sum(row.count for row in runtime.ledger.pending.find("scheduled")) == count, "all of it waits"
            runtime.ledger.targets.set_status(_RULE, _TARGET, "ok", "this benchmark says so")
            ramped_until = runtime.ledger.targets.statuses()[_RULE, _TARGET].until
            assert ramped_until is not None, "it has just healed"
            time.sleep((ramped_until - runtime.clock()).total_seconds() + 0.1)  # then it is as it was before
        drained = _delivered(installation, "retry", count)
        if target is None:
            with lines.open("rb") as file:
                assert sum(1 for _ in file) == 2 * count, "each came once"
    return live, drained


def _delivered(installation: Site, kind: BatchKind, count: int) -> _Pass:
    cost = measured(lambda: _batches(installation) if kind == "normal" else _retries(installation))
    with closing(installation.open()) as runtime:
        batches = [batch for batch in runtime.ledger.batches.find(limit=None) if batch.kind == kind]
        got = sum(
            chunk.succeeded for batch in batches for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)
        )
    assert got == count, f"{got} of {count} were delivered"
    return _Pass(got, len(batches), cost.wall, cost.cpu, cost.peak_mib)


def _batches(installation: Site) -> None:
    with closing(installation.open()) as runtime:
        router = InProcessRouter(runtime.store)
        while deliver_batch(runtime, RUNNER, router, Stop()) is not None:
            pass


def _retries(installation: Site) -> None:
    with closing(installation.open()) as runtime:
        while deliver_retries(runtime, RUNNER, Stop()) is not None:
            pass
