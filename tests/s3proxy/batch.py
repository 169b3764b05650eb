"""How many puts and listings batches cost: 50,000 events by 12 rules, settings as they are, and what follows of them.

Half of the rules have HTTP targets. Of these one refuses everything, which makes dead letters, and copies of them for
a partition; one is not well, so that retry batches follow; in the end the dead letters are redriven. Prints one table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

from benchmarks.bench_site import RUNNER, Site, event, site
from demo.receiver import Receiver
from demo.s3_server import S3Server
from rich.console import Console
from rich.table import Table
from s3proxy.forward import Forward

from eventbridge.dead_letters.redrive_plan import begin_redrive, plan_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import next_due_at
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

#: What the product promises of a normal batch of 50,000 events and 12 rules whose targets are fast.
MAX_PUTS = 60
MAX_LISTINGS = 1

_EVENTS = 50_000
_BYTES = 600
_BUCKET = "batches"
#: What HTTP targets respond by: after 50 ms, so that a push task takes several seconds.
_HEALTHY = "/delay/50"
_REFUSES, _UNWELL = "refuses", "unwell"
_PUSHES_AT_ONCE = 4  # as `eventbridge deliver` does
_PATIENCE_SECONDS = 240.0
_STAGES = ("plan", "buffer", "route", "push", "write_dead_letters", "schedule_retries", "commit")

Result = TypeVar("Result")


@dataclass
class Count:
    """The requests of one stage."""

    puts: int = 0
    listings: int = 0
    others: int = 0


@dataclass
class Counted:
    """One batch: what it was, its requests by stage, the seconds of its push tasks, and the deliveries it tried."""

    what: str
    stages: dict[str, Count] = field(default_factory=dict)
    pushes: list[float] = field(default_factory=list)
    deliveries: int = 0

    @property
    def puts(self) -> int:
        """All puts of the batch."""
        return sum(count.puts for count in self.stages.values())

    @property
    def max_listings(self) -> int:
        """The listings of the stage that lists most."""
        return max(count.listings for count in self.stages.values())


def run(port: int) -> int:
    """Deliver, retry and redrive with a store on the server on a port; return 1 if that costs more than promised."""
    with S3Server(application=Forward(port)) as server, site(large=False, **_store(server)) as installation:
        server.make_bucket(_BUCKET)
        with Receiver(installation.folder / "received.jsonl") as receiver:
            batches = _batches(installation, server, receiver)
    Console(width=140).print(_table(batches))
    first = batches[0]
    kept = first.puts <= MAX_PUTS and all(batch.max_listings <= MAX_LISTINGS for batch in batches)
    print(f"{first.puts} puts of at most {MAX_PUTS}; {'kept' if kept else 'BROKEN'}")  # noqa: T201
    return 0 if kept else 1


def _store(server: S3Server) -> dict[str, str]:
    return {"store_uri": f"s3://lake@{_BUCKET}/full", "conn_lake": server.connection}


def _batches(installation: Site, server: S3Server, receiver: Receiver) -> list[Counted]:
    installation.write_rules(_targets(receiver, installation.folder), _types())
    numbers = range(_EVENTS)
    with installation.bus() as bus:
        for start in range(0, _EVENTS, 5_000):
            bus.publish([(event(each, _BYTES, f"k{each % 12}"), None) for each in numbers[start : start + 5_000]])
    _set_response(receiver, 400, _REFUSES)
    _set_response(receiver, 503, _UNWELL)
    batches = []
    with closing(installation.open()) as runtime:
        router = InProcessRouter(runtime.store)

        def listened() -> tuple[str, list[int]]:
            batch_id = counting("plan", lambda: listen(runtime, RUNNER))
            assert batch_id is not None
            counting("buffer", lambda: buffer(runtime, batch_id))
            return batch_id, counting("route", lambda: route(runtime, batch_id, router))

        batch, counting = _begun("normal, 12 rules", server)
        batches.append(_pushed(runtime, batch, counting, *listened()))
        _set_response(receiver, 200, _REFUSES)
        _set_response(receiver, 200, _UNWELL)
        batches += _retries(runtime, server)
        batches += _redrives(runtime, server, router)
        assert audit(runtime).differences == ()
    return batches


def _retries(runtime: Runtime, server: S3Server) -> list[Counted]:
    """Take up what is pending, a batch at a time, until nothing is."""
    batches: list[Counted] = []
    end = time.monotonic() + _PATIENCE_SECONDS
    while next_due_at(runtime, RUNNER) is not None:
        assert time.monotonic() < end, "pending deliveries are still there"
        batch, counting = _begun(f"retry {len(batches) + 1}", server)
        plan = counting("plan", lambda counting=counting: plan_retries(runtime, RUNNER))
        if plan.batch_id is None:
            time.sleep(0.5)
        else:
            batches.append(_pushed(runtime, batch, counting, plan.batch_id, plan.chunk_ids))
    return batches


def _redrives(runtime: Runtime, server: S3Server, router: InProcessRouter) -> list[Counted]:
    """Redrive all dead letters: as they were, then through the current rules."""
    batches = []
    for what, retransform in (("redrive", False), ("redrive, retransform", True)):
        request = begin_redrive(runtime, Selection(), what, rate=None, retransform=retransform, again=True)
        while True:
            batch, counting = _begun(what, server)
            plan = counting("plan", lambda request=request: plan_redrive(runtime, request.redrive_id))
            if plan.batch_id is None:
                break
            chunk_ids = counting("route", lambda plan=plan: route(runtime, plan.batch_id, router))
            batches.append(_pushed(runtime, batch, counting, plan.batch_id, chunk_ids))
    return batches


Counting = Callable[[str, Callable[[], Any]], Any]


def _begun(what: str, server: S3Server) -> tuple[Counted, Counting]:
    """Return a batch without requests, and what runs one of its stages and counts them."""
    batch = Counted(what)

    def counting(stage: str, call: Callable[[], Result]) -> Result:
        server.requests.clear()
        result = call()
        requests = list(server.requests)
        puts, listings = sum(each.is_put for each in requests), sum(each.is_listing for each in requests)
        batch.stages[stage] = Count(puts, listings, len(requests) - puts - listings)
        return result

    return batch, counting


def _pushed(runtime: Runtime, batch: Counted, counting: Counting, batch_id: str, chunk_ids: Sequence[int]) -> Counted:
    def timed(chunk_id: int) -> float:
        began = time.monotonic()
        report = push(runtime, batch_id, chunk_id, Stop())
        batch.deliveries += report.delivered + report.dead_lettered + report.retried
        return time.monotonic() - began

    def pushes() -> list[float]:
        with ThreadPoolExecutor(_PUSHES_AT_ONCE) as pool:
            return list(pool.map(timed, chunk_ids))

    batch.pushes = counting("push", pushes)
    counting("write_dead_letters", lambda: write_dead_letters(runtime, batch_id))
    counting("schedule_retries", lambda: schedule_retries(runtime, batch_id))
    counting("commit", lambda: commit(runtime, batch_id))
    assert runtime.ledger.batches.get(batch_id).state == "committed"
    return batch


def _types() -> dict[str, list[str]]:
    """Return what each rule wants: eleven a twelfth of the events, one a half; together three matches in two."""
    return {f"r{number}": [f"k{number}"] for number in range(11)} | {
        "r11": [f"k{number}" for number in range(0, 12, 2)]
    }


def _targets(receiver: Receiver, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the target of each rule: every other one HTTP, and of these two that are not well."""
    paths = {3: f"/scripted/{_REFUSES}", 5: f"/scripted/{_UNWELL}"}
    targets: dict[str, dict[str, Any]] = {}
    for number in range(12):
        if number % 2 == 0:
            targets[f"r{number}"] = {"lines": {"type": "file", "path": str(folder / f"{number}.jsonl")}}
        else:
            url = receiver.url(paths.get(number, _HEALTHY))
            targets[f"r{number}"] = {"hook": {"type": "http", "url": url, "allow_http": True, "connection": "signed"}}
    soon = {"policy": "custom", "max_retries": 1_000, "initial_delay": "1s", "multiplier": 1, "max_delay": "1s"}
    targets["r5"]["hook"]["retry"] = soon
    targets["r3"]["hook"]["dead_letter_queue"] = {"type": "file", "path": str(folder / "dead-letters.jsonl")}
    return targets


def _set_response(receiver: Receiver, status: int, name: str) -> None:
    urlopen(receiver.url(f"/script/{status}/{name}")).close()


def _table(batches: Sequence[Counted]) -> Table:
    table = Table(
        title=f"puts + listings (other requests) of {_EVENTS:,} events, and of the batches that follow of them"
    )
    columns = ("batch", *_STAGES, "puts", "pushes", "longest", "deliveries")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="left" if name == "batch" else "right")
    for batch in batches:
        cells = [batch.stages.get(name) for name in _STAGES]
        reported = ["" if each is None else f"{each.puts}+{each.listings} ({each.others})" for each in cells]
        numbers = (str(batch.puts), str(len(batch.pushes)), f"{max(batch.pushes):.1f} s", f"{batch.deliveries:,}")
        table.add_row(batch.what, *reported, *numbers)
    return table
