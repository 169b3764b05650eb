"""Defines the kinds of batches that the harness stops: their stages, their preparation, and the targets' responses.

A kind that is added here goes through all trials like the others, and gets its rows on the page.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from faults.world import BUDGETED_RULE, MOVED_RUNNER, RUNNER, Clock, World, move_rule

from eventbridge import fault_points
from eventbridge.control.release import release_rule
from eventbridge.dead_letters.redrive_plan import begin_redrive, plan_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.delivery.push import push
from eventbridge.errors import EventBridgeError
from eventbridge.model.batch import BatchKind
from eventbridge.model.redelivery import Redrive, Replay
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.deferred import plan_deferred_matches
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.repair import repair_batch
from eventbridge.replay.plan import begin_replay, plan_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.runtime.stop import Stop
from eventbridge.store import layout
from eventbridge.streaming import handover as streaming_handover
from eventbridge.streaming import lease as streaming_lease
from eventbridge.streaming.committer import reconcile
from eventbridge.streaming.lease import Bounds
from eventbridge.streaming.task import StreamingSummary, deliver_streaming
from eventbridge.upkeep.maintain import maintain

#: The kinds of work that are stopped: a batch of that kind, the repair of a normal one, retention, the index of event
#: ids, the compaction of a day, a rule's transfer to another runner, a batch from a queue, or a streaming task: one
#: from its first event on, one that takes over an abandoned batch, one that hands over a backlog, one that hands over
#: to another, or its committer.
KindName = Literal[
    "normal",
    "retry",
    "redrive",
    "retransform",
    "replay",
    "deferred_matches",
    "repair",
    "retention",
    "index",
    "compaction",
    "rule_transfer",
    "queue",
    "streaming",
    "takeover",
    "backlog",
    "change",
    "committer",
]
#: The steps that a world may go through between two stages.
StepName = Literal["hold", "release", "damage", "finish", "index", "next_day", "move", "leave", "plan"]
Body = Callable[[World, BatchKind], None]

#: By the product's clock, recovery starts two hours later, and again two hours later, when every retry is due.
LATER = timedelta(hours=2)

#: The bounds of a world's streaming task, which makes no retries; later tasks or the recovery make them.
_UNTIL_IDLE = Bounds(idle_seconds=0.2, makes_retries=False)
#: How many seconds a streaming task waits for the previous one to close its batch. A close takes a second; the product
#: waits half a minute.
_CLOSE_SECONDS = 5.0
#: The bounds of a streaming task that dies as soon as something is recorded, which takes longer on a busy machine.
_LONGER = replace(_UNTIL_IDLE, idle_seconds=1.0)

#: How each connection's target responds: it accepts all deliveries unless a kind sets something else.
WELL: Mapping[str, str] = {name: name for name in ("healthy", "late", "strict", "bills", "bad")}
_SOME_FAIL: Mapping[str, str] = {**WELL, "late": "nobody", "strict": "first"}


@dataclass(frozen=True)
class Kind:
    """The stages of one kind, in order, and what must have happened before the first of them.

    `before` has runs, as `runs.run` takes them. `responses` says how targets respond while the stages run (see
    `receiver.py`; for `nobody` no server listens); in the end all targets but `bad` work, and `bad` too if
    `bad_is_fixed`. `events` is what its worlds publish. If `split`, a batch leaves one message for another batch. If
    `early`, a stage that died is continued immediately; otherwise it is settled late, and an early run waits.
    `again` is for stages whose calls are repeated for each response: after the first dozen calls, `make test` has one
    in that many calls die or fail. `most` is the number of evenly spread calls at which `make test` stops it, because
    the total depends on the scheduling of threads; a call that is not reached is no error. `requests` is the number of
    connections that break, for the same reason. `own` are the stages that do for this kind what they do for no other:
    `make test` stops it only in these, at one in `every` calls of `matrix.deaths_of_test`, and has no call fail. If it
    is None, all stages are stopped at each of these calls, and the calls in `matrix.failures_of_test` fail too.
    """

    batch: BatchKind
    stages: Mapping[str, Body]
    before: tuple[str, ...] = ()
    ahead: timedelta = timedelta(0)
    responses: Mapping[str, str] = field(default_factory=lambda: WELL)
    bad_is_fixed: bool = False
    events: Literal["orders", "placed", "bills"] = "orders"
    split: bool = False
    early: bool = True
    own: frozenset[str] | None = None
    as_normal: frozenset[str] = frozenset()
    every: int = 1
    again: Mapping[str, int] = field(default_factory=dict)
    most: int | None = None
    requests: int | None = None


def _listen(runtime: World, _: BatchKind) -> None:
    listen(runtime, RUNNER)


def _buffer(runtime: World, kind: BatchKind) -> None:
    buffer(runtime, batch_of(runtime, kind))


def _route(runtime: World, kind: BatchKind) -> None:
    route(runtime, batch_of(runtime, kind), runtime.router)


def _plan_retries(runtime: World, _: BatchKind) -> None:
    plan_retries(runtime, RUNNER)


def _plan_deferred_matches(runtime: World, _: BatchKind) -> None:
    plan_deferred_matches(runtime, RUNNER)


def _plan_redrive(runtime: World, _: BatchKind) -> None:
    plan_redrive(runtime, ask_for_redrive(runtime, retransform=False).redrive_id)


def _plan_retransform(runtime: World, _: BatchKind) -> None:
    plan_redrive(runtime, ask_for_redrive(runtime, retransform=True).redrive_id)


def _plan_replay(runtime: World, _: BatchKind) -> None:
    plan_replay(runtime, ask_for_replay(runtime).replay_id)


def _push(runtime: World, kind: BatchKind) -> None:
    batch_id = batch_of(runtime, kind)
    for chunk in runtime.ledger.chunks.list_for_batch(batch_id):
        if chunk.handed_out:
            push(runtime, batch_id, chunk.chunk_id)


def _write_dead_letters(runtime: World, kind: BatchKind) -> None:
    write_dead_letters(runtime, batch_of(runtime, kind))


def _schedule_retries(runtime: World, kind: BatchKind) -> None:
    schedule_retries(runtime, batch_of(runtime, kind))


def _commit(runtime: World, kind: BatchKind) -> None:
    commit(runtime, batch_of(runtime, kind))


def _repair(runtime: World, kind: BatchKind) -> None:
    repair(runtime)


def _maintain(runtime: World, kind: BatchKind) -> None:
    maintain(runtime)


def _listen_moved(runtime: World, _: BatchKind) -> None:
    listen(runtime, MOVED_RUNNER)


def _finish_old(runtime: World, kind: BatchKind) -> None:
    for body in (_route, *_SETTLING.values()):
        body(runtime, kind)


def run_streaming_task(runtime: World, bounds: Bounds = _UNTIL_IDLE) -> StreamingSummary:
    """Deliver events as they arrive, until none has arrived for a moment."""
    return deliver_streaming(runtime, RUNNER, Stop(), bounds)


def _run_streaming_task(runtime: World, _: BatchKind) -> None:
    run_streaming_task(runtime)


def _hand_over(runtime: World, _: BatchKind) -> None:
    """End a streaming task because of a backlog, and plan the backlog; the first task does nothing else."""
    if run_streaming_task(runtime, replace(_UNTIL_IDLE, backlog_seconds=1e-6)).backlog:
        listen(runtime, RUNNER)


def _change(runtime: World, _: BatchKind) -> None:
    """Hand over from a streaming task with events in its batch to the standby, while the former closes the batch."""
    streaming_lease._RENEW_SECONDS = 0.05
    streaming_handover._CLOSE_SECONDS = _CLOSE_SECONDS
    failed: list[EventBridgeError] = []

    def first() -> None:
        try:
            run_streaming_task(runtime, replace(_UNTIL_IDLE, idle_seconds=1.0))
        except EventBridgeError as error:
            failed.append(error)

    former = threading.Thread(target=first)
    former.start()
    while former.is_alive() and not _is_in_progress(runtime):
        threading.Event().wait(0.01)
    try:
        run_streaming_task(runtime, replace(_UNTIL_IDLE, is_standby=True, patience_seconds=5.0))
    finally:
        former.join()
    for error in failed:
        raise error


def _is_in_progress(runtime: World) -> bool:
    spans = [
        each
        for batch in runtime.ledger.batches.find(state="open")
        for each in runtime.ledger.batches.ranges(batch.batch_id)
    ]
    return any(each.end > each.start for each in spans)


def _reconcile(runtime: World, kind: BatchKind) -> None:
    """Reconcile as a committer does on request."""
    reconcile(runtime, batch_of(runtime, kind), None)


_SETTLING: Mapping[str, Body] = {
    "push": _push,
    "write_dead_letters": _write_dead_letters,
    "schedule_retries": _schedule_retries,
    "commit": _commit,
}

KINDS: dict[KindName, Kind] = {
    "normal": Kind(
        "normal",
        {"listen": _listen, "buffer": _buffer, "route": _route, **_SETTLING},
        responses=_SOME_FAIL,
        again={"push": 3},
    ),
    "retry": Kind(
        "retry",
        {"plan": _plan_retries, **_SETTLING},
        before=("normal.all",),
        ahead=LATER,
        responses={**WELL, "late": "half", "strict": "second"},
        early=False,
        as_normal=frozenset({"push", "write_dead_letters"}),
        again={"push": 3},
    ),
    "redrive": Kind(
        "redrive",
        {"plan": _plan_redrive, **_SETTLING},
        before=("normal.all",),
        bad_is_fixed=True,
        own=frozenset({"plan", "push"}),
    ),
    "retransform": Kind(
        "redrive",
        {"plan": _plan_retransform, "route": _route, **_SETTLING},
        before=("normal.all",),
        bad_is_fixed=True,
        own=frozenset({"plan", "route"}),
    ),
    "replay": Kind(
        "replay",
        {"plan": _plan_replay, "route": _route, **_SETTLING},
        before=("normal.all",),
        bad_is_fixed=True,
        own=frozenset({"plan", "route"}),
    ),
    "deferred_matches": Kind(
        "retry",
        {"plan": _plan_deferred_matches, "route": _route, **_SETTLING},
        before=("hold", "normal.all", "release"),
        ahead=LATER,
        events="bills",
        early=False,
        own=frozenset({"plan", "route", "commit"}),
    ),
    "repair": Kind(
        "normal",
        {"repair": _repair},
        before=(
            *(f"normal.{stage}" for stage in ("listen", "buffer", "route", *_SETTLING) if stage != "commit"),
            "damage",
        ),
        own=frozenset({"repair"}),
        every=3,  # two thirds of its calls settle and commit the batch as usual
    ),
    "retention": Kind(
        "normal",
        {"maintain": _maintain},
        before=("normal.all", "finish"),
        ahead=timedelta(days=500),  # so that only the newest manifest of each kind of batch remains
        own=frozenset({"maintain"}),
        every=3,
    ),
    "index": Kind(
        "normal",
        {"maintain": _maintain},
        before=("normal.all", "index", "normal.all"),
        ahead=timedelta(days=2),  # the day is over, so its index files are joined
        split=True,
        own=frozenset({"maintain"}),
        every=2,  # tests/pipeline stops it at every call, in the test's process
    ),
    "compaction": Kind(
        "normal",
        {"maintain": _maintain},
        before=("normal.all", "next_day"),
        ahead=timedelta(days=3),  # the first day is over, and a later one has a batch
        split=True,
        own=frozenset({"maintain"}),
    ),
    "rule_transfer": Kind(
        "normal",
        {
            "wait": _listen_moved,  # while a batch with the rule is in progress
            "finish": _finish_old,
            "leave": _listen,  # the old runner plans without the rule
            "take": _listen_moved,
        },
        before=("normal.listen", "normal.buffer", "move"),
        split=True,
        own=frozenset({"wait", "leave", "take"}),
    ),
    "queue": Kind(
        "normal",
        {"listen": _listen, "buffer": _buffer, "route": _route, **_SETTLING},
        responses=_SOME_FAIL,
        early=False,  # messages that a dead process received are repeated after the visibility timeout
        own=frozenset({"listen"}),
        every=2,  # two thirds of its calls plan the batch as usual
    ),
    "streaming": Kind("normal", {"streaming_task": _run_streaming_task}, responses=_SOME_FAIL, most=28, requests=4),
    "takeover": Kind(
        "normal",
        {"streaming_task": _run_streaming_task},
        before=("leave",),
        responses=_SOME_FAIL,
        events="placed",
        most=16,
        requests=4,
    ),
    "backlog": Kind(
        "normal",
        {"streaming_task": _hand_over},
        before=("normal.all",),
        responses=_SOME_FAIL,
        events="placed",
        split=True,
        most=8,
    ),
    "change": Kind("normal", {"streaming_task": _change}, responses=_SOME_FAIL, events="placed", most=16, requests=0),
    "committer": Kind("normal", {"reconciliation": _reconcile}, before=("plan",), responses=_SOME_FAIL, most=16),
}


def hold(runtime: World) -> None:
    """Put the budgeted rule on hold, so that all of its events become deferred matches."""
    version = runtime.rule_set().rules[BUDGETED_RULE].version
    runtime.ledger.rules.hold(BUDGETED_RULE, version, "a person has a look at it")


def release(runtime: World) -> None:
    """Release the budgeted rule."""
    release_rule(runtime, BUDGETED_RULE)


def damage(runtime: World) -> None:
    """Truncate a delivery file of the newest batch, and remove its settlement and a segment with responses."""
    files = {
        kind: next(
            file.path for file in runtime.ledger.files.list_for_batch(batch_of(runtime, "normal"), kind) if file.path
        )
        for kind in ("delivery", "outcome", "settlement")
    }
    whole = runtime.store.get(files["delivery"])
    for path in files.values():
        runtime.store.delete(path)
    runtime.store.put(files["delivery"], whole[: len(whole) // 2])
    (runtime.folder / "damaged.json").write_text(json.dumps(sorted(files.values())))


def finish(runtime: World) -> None:
    """Deliver within hours all that can be delivered, and create an orphaned file."""
    clock = runtime.clock
    assert isinstance(clock, Clock)
    began = clock.ahead - KINDS["retention"].ahead
    for turn in range(1, 5):
        clock.ahead = began + turn * LATER
        idle = deliver_until_idle(runtime, RUNNER, runtime.router, wait_seconds=0.0)
        if idle.next_due_at is None:
            break
    assert idle.next_due_at is None, "something still waits"
    batch = runtime.ledger.batches.get(batch_of(runtime, "normal"))
    runtime.store.put(layout.deliveries(batch.planned_at, batch.batch_id, "lost", "0"), b"of an attempt that died")


def maintain_once(runtime: World) -> None:
    """Index all previous batches in a separate file."""
    maintain(runtime)


def deliver_later(runtime: World) -> None:
    """Deliver the event that the batch of the first day has left."""
    deliver_until_idle(runtime, RUNNER, runtime.router, wait_seconds=0.0)


def leave(runtime: World) -> None:
    """Start a streaming task, and die as soon as a response of its batch is recorded."""

    def die(point: str) -> None:
        if point == "ledger.commit.done" and runtime.store.list("outcomes/"):
            os._exit(0)

    fault_points.install(die)
    run_streaming_task(runtime, _LONGER)
    raise AssertionError("nothing of the batch was recorded")


def plan_open_batch(runtime: World) -> None:
    """Run a streaming task, and die as soon as its batch is planned, so that its committer reconciles it."""

    def die(point: str) -> None:
        if point == "ledger.commit.done" and any(
            each.state == "planned" for each in runtime.ledger.batches.find(limit=None)
        ):
            os._exit(0)

    fault_points.install(die)
    run_streaming_task(runtime, _LONGER)
    raise AssertionError("no batch was planned")


STEPS: Mapping[StepName, Callable[[World], None]] = {
    "hold": hold,
    "release": release,
    "damage": damage,
    "finish": finish,
    "index": maintain_once,
    "next_day": deliver_later,
    "move": move_rule,
    "leave": leave,
    "plan": plan_open_batch,
}


def repair(runtime: World) -> None:
    """Repair what `damage` did."""
    repair_batch(runtime, batch_of(runtime, "normal"), runtime.router, dry_run=False)


def ask_for_redrive(runtime: World, *, retransform: bool) -> Redrive:
    """Request a redrive of every dead letter; a second request returns the existing redrive."""
    return begin_redrive(runtime, Selection(), "redrive", rate=None, retransform=retransform, again=False)


def ask_for_replay(runtime: World) -> Replay:
    """Request a replay of everything for the rule with refused events; a second request returns the existing replay."""
    now = runtime.ledger.now()
    request = WrittenReplayRequest("orders", since="1d", rules=["refused-orders"]).read(now, runtime.rule_set())
    return begin_replay(runtime, request, "replay")


def batch_of(runtime: World, kind: BatchKind) -> str:
    """Return the last planned batch of a kind, as an Airflow run would pass it from stage to stage."""
    return next(batch.batch_id for batch in runtime.ledger.batches.find(limit=None) if batch.kind == kind)
