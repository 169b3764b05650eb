"""Measures push's memory while the backlog of a dead target grows: a part of `make bench-isolation`."""

from __future__ import annotations

import threading
from contextlib import closing

from benchmarks.bench_site import RUNNER, Site, measured, push_all, site
from benchmarks.compiled_receiver import CompiledReceiver
from rich.console import Console
from rich.table import Table

from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_retries
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.runtime.stop import Stop

#: The maximum ratio of push's last memory to its first that counts as flat.
_FLAT = 1.1


def memory_is_flat(receiver: CompiledReceiver, pending: int) -> bool:
    """Add pending deliveries for a dead target, batch by batch, and print what push took of memory meanwhile."""
    table = Table(title=f"push while {pending:,} deliveries wait for a dead target")
    for title in (
        "waiting",
        "push, MiB",
        "settle, schedule retries and commit, MiB",
        "plan retries, push and commit, MiB",
    ):
        table.add_column(title, justify="right")
    peaks: list[float] = []
    with site() as installation:
        http = {"type": "http", "allow_http": True, "timeout": "1s"}
        rules = {name: {"target": http | {"url": receiver.url(f"/{how}/{name}")}} for name, how in _MEMORY.items()}
        installation.write_rules(rules, types={"dead": ["bench", "few"], "healthy": ["few"]})
        with closing(installation.open()) as runtime:
            runtime.ledger.targets.set_status("dead", "target", "degraded", "this benchmark says so")
        each = max(1, min(50_000, pending // 2))
        for first in range(0, pending, each):
            few = max(1, each // 50)
            installation.publish(few, 256, first, "few")
            installation.publish(each - few, 256, first + few)
            batch_id, chunk_ids = measured(installation.routed).result
            pushed = measured(
                lambda batch_id=batch_id, chunk_ids=chunk_ids: push_all(installation, batch_id, chunk_ids)
            )
            settled = measured(lambda batch_id=batch_id: _settle(installation, batch_id))
            retried = measured(lambda: _retry(installation))
            peaks.append(max(pushed.peak_mib, retried.peak_mib))
            table.add_row(
                f"{first + each:,}", f"{pushed.peak_mib:.0f}", f"{settled.peak_mib:.0f}", f"{retried.peak_mib:.0f}"
            )
    kept = peaks[-1] <= peaks[0] * _FLAT
    Console(width=120).print(table)
    print(f"goal: flat, at most {_FLAT:g} times of what it was at first: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


_MEMORY = {"dead": "hang", "healthy": "ok"}


def _settle(installation: Site, batch_id: str) -> None:
    with closing(installation.open()) as runtime:
        write_dead_letters(runtime, batch_id)
        schedule_retries(runtime, batch_id)
        commit(runtime, batch_id)


def _retry(installation: Site) -> None:
    """Do one retry run, which meets the dead target; its budget is cut short by the stop flag."""
    stop = Stop()
    timer = threading.Timer(3.0, stop.set)
    timer.start()
    with closing(installation.open()) as runtime:
        deliver_retries(runtime, RUNNER, stop)
    timer.cancel()
