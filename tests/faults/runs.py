"""Runs a stage, all stages of a kind, a step between them or the recovery of a world in a forked process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from faults.kinds import KINDS, STEPS, ask_for_redrive, ask_for_replay, repair, run_streaming_task
from faults.look import look
from faults.world import MOVED_RUNNER, RUNNER, Clock, World, valid_events_of
from stored import sums_ever

from eventbridge.control.consecutive_batches import deliver_redrive, deliver_replay
from eventbridge.dead_letters.reader import select_dead_letters
from eventbridge.dead_letters.redrives import Marks
from eventbridge.delivery import engine
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.repair.audit import Audit, audit
from eventbridge.replay.account import account_of
from eventbridge.store import layout
from eventbridge.streaming import task as streaming
from eventbridge.upkeep.maintain import maintain
from eventbridge.views.metrics import reconciliation_difference
from eventbridge.views.trace.explain import why

#: The numbers that stats and reconciliation share.
OUTCOMES = ("delivered", "dead_lettered")

#: A recovery that begins with a streaming task, before the stages and the retries.
BY_STREAMING_TASK = "recovery-by-streaming-task"

Report = Callable[[list[Any]], None]


def run(runtime: World, what: str, report: Report, begin: Callable[[], None]) -> None:
    """Run `<kind>.<stage>`, all stages of a kind (`<kind>.all`), one of `STEPS`, or the recovery of what happened.

    `begin` is called when everything is ready, and calls are counted from then on. A recovery first reports what it
    found (`look`), then advances the clock as `recovery:<hours>,<hours>` says, and finally reports the reconciliation.
    With `BY_STREAMING_TASK` in place of `recovery`, a streaming task runs first each time.
    """
    # a push on a slow machine would repeat its work of every second, but the number of calls must not depend on speed
    engine._EXCHANGE_SECONDS = 3600.0
    streaming._RETRY_SECONDS = 0.05
    name, _, detail = what.partition(":")
    if name.startswith("recovery"):
        report(["look", look(runtime)])
        begin()
        _recover(runtime, [float(hours) for hours in detail.split(",")], by_streaming_task=name == BY_STREAMING_TASK)
        report(["reconciliation", _reconciliation(runtime)])
        return
    begin()
    if name in STEPS:
        STEPS[name](runtime)  # type: ignore[index]
        return
    kind, _, which = name.partition(".")
    found = KINDS[kind]  # type: ignore[index]
    for body in found.stages.values() if which == "all" else [found.stages[which]]:
        body(runtime, found.batch)


def _recover(runtime: World, hours: list[float], *, by_streaming_task: bool) -> None:
    clock = runtime.clock
    assert isinstance(clock, Clock)
    began = clock.ahead
    for each in hours:
        clock.ahead = began + timedelta(hours=each)
        if by_streaming_task:
            run_streaming_task(runtime)
        if _go_on(runtime):
            return


def _go_on(runtime: World) -> bool:
    """Do what the product does on its own, and repeat an operator's requests; return whether nothing is left to do."""
    if runtime.kind == "repair":
        repair(runtime)
    if runtime.kind in ("retention", "index", "compaction"):
        maintain(runtime)
    idle = deliver_until_idle(runtime, RUNNER, runtime.router, wait_seconds=0.0)
    if runtime.kind == "rule_transfer":  # again, because work that waited for the old runner can now continue
        deliver_until_idle(runtime, MOVED_RUNNER, runtime.router, wait_seconds=0.0)
        idle = deliver_until_idle(runtime, RUNNER, runtime.router, wait_seconds=0.0)
    if runtime.kind == "index":
        maintain(runtime)
    if runtime.kind in ("redrive", "retransform"):
        request = ask_for_redrive(runtime, retransform=runtime.kind == "retransform")
        if deliver_redrive(runtime, request.redrive_id, runtime.router):
            idle = deliver_until_idle(runtime, RUNNER, runtime.router, wait_seconds=0.0)
    if runtime.kind == "replay" and deliver_replay(runtime, ask_for_replay(runtime).replay_id, runtime.router):
        idle = deliver_until_idle(runtime, RUNNER, runtime.router, wait_seconds=0.0)
    return idle.next_due_at is None


def _reconciliation(runtime: World) -> dict[str, Any]:
    reconciliation = audit(runtime)
    return {
        "differences": [
            *reconciliation.differences,
            *_unrecorded(runtime),
            *_marked_wrong(runtime),
            *_replayed_wrong(runtime),
            *_orphaned(runtime),
            *_not_indexed(runtime),
            *_not_compacted(runtime),
            *_stats_wrong(runtime, reconciliation),
        ],
        "open": reconciliation.open_batches,
        "events": reconciliation.events,
        "deliveries": reconciliation.deliveries,
    }


def _stats_wrong(runtime: World, reconciliation: Audit) -> Iterator[str]:
    """Yield where the stats of rules' targets or of buses differ from the reconciliation."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in sums_ever(runtime.ledger, "target"):
        key = each.key
        counts[key.rule, key.target, key.outcome] += each.count
    for key, sums in reconciliation.deliveries.items():
        rule, _, target = key.partition("/")
        found = {name: counts[rule, target, name] for name in OUTCOMES}
        if found != (wanted := {name: sums[name] for name in OUTCOMES}):
            yield f"stats of {key} are {found}, the reconciliation {wanted}"
    if difference := reconciliation_difference(runtime.ledger.snapshots.read(of_targets=False)):
        yield f"{difference} deliveries are neither ended nor pending, by the stats"
    for outcome in OUTCOMES:
        of_targets = sum(count for (_, _, name), count in counts.items() if name == outcome)
        of_buses = sum(each.count for each in sums_ever(runtime.ledger, "bus") if each.key.outcome == outcome)
        if of_targets != of_buses:
            yield f"{of_targets} are {outcome} by target, and {of_buses} by bus"


def _unrecorded(runtime: World) -> Iterator[str]:
    """Yield damaged files that no record of a repair names, although a repair must have written one."""
    path = runtime.folder / "damaged.json"
    if path.exists():
        records = [json.loads(runtime.store.get(record)) for record in runtime.store.list("repairs/")]
        recorded = {file for record in records for file in record["unreadable"]}
        yield from (
            f"no repair says that {file} was unreadable"
            for file in json.loads(path.read_text())
            if file not in recorded
        )


def _orphaned(runtime: World) -> Iterator[str]:
    """If retention ran, yield what it did not remove: each file but manifests, and all of a batch but its row."""
    if runtime.kind == "retention":
        areas = ("buffer/", "deliveries/", "outcomes/", "settlements/", "dead_letters/")
        yield from (path for path in runtime.store.list("") if path.startswith(areas))
        kept = {(batch.kept, batch.remaining) for batch in runtime.ledger.batches.find(limit=None)}
        if kept != {("manifest", "manifest")}:
            yield f"of batches is kept: {kept}"
        if runtime.ledger.pending.find():
            yield "pending rows are left"


def _not_compacted(runtime: World) -> Iterator[str]:
    """If the first day was compacted, yield its files that still have a file of their own, though others of the folder
    could have been compacted with them."""
    if runtime.kind == "compaction":
        first, *_ = sorted(runtime.ledger.batches.find(limit=None), key=lambda batch: batch.planned_at)
        in_use = runtime.ledger.retention.files_in_use()
        for prefix in layout.folders_of_day(first.planned_at, ["orders"]):
            own = [path for path in runtime.store.list(prefix) if path not in in_use]
            if len(own) > 1:
                yield f"these files are not compacted: {own}"
        if not runtime.store.list(layout.COMPACTED_LISTS):
            yield "no file is compacted"


def _not_indexed(runtime: World) -> Iterator[str]:
    """If the index was written, yield the events that it does not find and its incomplete files."""
    if runtime.kind == "index":
        files = runtime.ledger.event_index.files()
        if len(files) != 1 or runtime.ledger.event_index.batches_to_index(1):
            yield f"the index has {len(files)} files, and not every batch"
        for name in valid_events_of(runtime):
            found = why(runtime, name)
            if found.searched.files != 1 or found.unreadable:
                yield f"{name} is found in {found.searched.files} files {found.unreadable}"


def _marked_wrong(runtime: World) -> Iterator[str]:
    """If there was a redrive, yield the errors in the marks of dead letters that it took or left."""
    if runtime.ledger.redrives.all():
        marks = Marks(runtime)
        found: Counter[str] = Counter()
        for each in select_dead_letters(runtime):
            if each.record["delivery_id"] is not None:
                mark = marks.mark(each)
                found["never redriven" if mark is None else mark.outcome] += 1
        if set(found) != {"delivered"}:
            yield f"dead letters that were redriven came to {dict(found)}"


def _replayed_wrong(runtime: World) -> Iterator[str]:
    """If there was a replay, yield its errors: there must be one, finished and completely delivered."""
    replays = runtime.ledger.replays.all()
    for each in replays:
        account = account_of(runtime, each)
        if (len(replays), each.state, set(account.outcomes)) != (1, "done", {"delivered"}):
            yield f"of {len(replays)} replays one is {each.state} and came to {dict(account.outcomes)}"
