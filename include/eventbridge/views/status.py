"""Returns the status of every runner: its partitions, batches and chunks, and what is pending, on hold or unhealthy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, TypeVar

from eventbridge.errors import BusError, RuleError, RuleFileError, RuleMovedError
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import AppliedSlots
from eventbridge.model.pending import DeferredMatch, PendingState
from eventbridge.model.rule_state import OperatorOverride, RuleOnHold
from eventbridge.model.stat import DroppedTotal
from eventbridge.model.storage import IngestionStop, StoreQuota
from eventbridge.pipeline.ingest.rule_transfer import arrivals, transfer_of
from eventbridge.policy.hold_reason import deferred_match_hold_reason
from eventbridge.policy.ordering import delivery_on_hold_at
from eventbridge.rules import RuleSet
from eventbridge.runtime.claims import is_gone
from eventbridge.runtime.quotas import OwnerStatus, owner_statuses, store_quota
from eventbridge.runtime.runtime import Runtime
from eventbridge.streaming import lease as streaming_lease
from eventbridge.views.partitions import (
    PartitionFlow,
    PartitionStatus,
    events_before_first_run,
    partition_flows,
    partition_statuses,
)
from eventbridge.views.target_status import TargetStanding, target_standings

#: The hold reason of a deferred match if neither the rule files nor the ledger say why it is on hold. It names two
#: possibilities, because only Airflow knows the slots of pools.
_POOL_OR_RUN = "its pool, if the pool is closed, or the next retry run"
_REMEDY = (
    "If that takes more than a few minutes, check that the old runner's DAG, or its `eventbridge deliver`, is running"
)


class _OfRule(Protocol):
    @property
    def rule(self) -> str: ...


Of = TypeVar("Of", bound=_OfRule)


@dataclass(frozen=True)
class NewRunner:
    """A runner that has never run and whose group is therefore not registered, and where it will start.

    `waiting` is the number of events on the bus that its first run will take; None if unknown.
    """

    runner: str
    bus: str
    start_at: str | datetime
    waiting: int | None


@dataclass(frozen=True)
class StreamingRunner:
    """A runner in streaming mode, with the holder and the end of its lease; both are None if no process holds it."""

    runner: str
    holder: str | None
    until: datetime | None


@dataclass(frozen=True)
class PendingStatus:
    """The number of a target's deliveries that are pending in one state for one reason.

    `next_due_at` is when the first of them is due, or None if they are not scheduled. `hold_reason` says why they are
    on hold, or is "" if they are not.
    """

    rule: str
    target: str
    state: PendingState
    reason: str
    count: int
    next_due_at: datetime | None
    hold_reason: str


@dataclass(frozen=True)
class DeferredMatchStatus:
    """The number of events that are waiting to be matched against a rule, in one state and for one reason.

    The first of them was deferred at `since`. `next_due_at` is when the first of them is due, or None if they are not
    scheduled. `hold_reason` says why they are on hold, or is "" if they are not.
    """

    rule: str
    state: PendingState
    reason: str
    events: int
    since: datetime
    next_due_at: datetime | None
    hold_reason: str


@dataclass(frozen=True)
class Status:
    """The output of `eventbridge status`."""

    now: datetime
    partitions: tuple[PartitionStatus, ...]
    flows: tuple[PartitionFlow, ...]
    ingestion_stop: IngestionStop | None  # None unless all runners have stopped planning batches
    store_quota: StoreQuota | None  # None if the store has no quota
    airflow_changes_dropped: DroppedTotal | None  # None if no change in Airflow was dropped
    unregistered: tuple[NewRunner, ...]
    stalled: tuple[StalledRunner, ...]
    streaming: tuple[StreamingRunner, ...]
    batches: tuple[Batch, ...]  # newest first
    chunks: Mapping[str, int]  # of batches that are not committed
    pending: tuple[PendingStatus, ...]
    deferred_matches: tuple[DeferredMatchStatus, ...]
    rules_on_hold: tuple[RuleOnHold, ...]  # on hold in their current version, or blocked by a delivery
    targets: tuple[TargetStanding, ...]  # only targets that are not ok
    overrides: tuple[OperatorOverride, ...]  # overrides that are set
    pools: tuple[AppliedSlots, ...]  # only pools to which rule files give slots
    owners: tuple[OwnerStatus, ...]  # only owners that have quotas
    errors: tuple[RuleError, ...]  # in the current rule files; batches use the rules of `rules_since`
    rules_since: datetime | None  # when the rules that new batches use came into force


def status(runtime: Runtime, *, batches: int = 10) -> Status:
    """Return the status of all runners of the current rule files, and the newest batches; queries the buses."""
    rules = runtime.rule_set()
    runners = rules.runners()
    partitions: list[PartitionStatus] = []
    unregistered = []
    for runner, bus in runners.items():
        found = partition_statuses(runtime, rules, runner, bus)
        if found is None:
            at, waiting = rules.buses[bus].source.start_at, events_before_first_run(runtime, rules.buses[bus])
            unregistered.append(NewRunner(runner, bus, at, waiting))
        else:
            partitions += found
    standing = Status(
        now=runtime.clock(),
        partitions=tuple(partitions),
        flows=tuple(partition_flows(runtime, rules, partitions)),
        ingestion_stop=runtime.ledger.ingestion.current_stop(),
        store_quota=store_quota(runtime),
        airflow_changes_dropped=runtime.ledger.dropped_changes.total(),
        unregistered=tuple(unregistered),
        stalled=tuple(_stalled_runners(runtime, rules)),
        streaming=tuple(_streaming(runtime, name) for name in runners if rules.mode_of(name).mode == "streaming"),
        batches=tuple(runtime.ledger.batches.find(limit=batches)),
        chunks=runtime.ledger.chunks.counts(),
        pending=tuple(_pending_statuses(runtime)),
        deferred_matches=tuple(_deferred_match_statuses(runtime, rules)),
        rules_on_hold=tuple(rules_on_hold(runtime, rules)),
        targets=tuple(each for each in target_standings(runtime) if each.state != "ok"),
        overrides=tuple(runtime.ledger.overrides.all()),
        pools=tuple(runtime.ledger.pools.applied_slots().values()),
        owners=tuple(owner_statuses(runtime, rules)),
        errors=_errors(runtime),
        rules_since=known.since if (known := runtime.ledger.rules.get_in_force()) is not None else None,
    )
    return standing if runtime.owners is None else _restrict(standing, rules)


def _restrict(full: Status, rules: RuleSet) -> Status:
    """Return a status restricted to some rules, without errors and counts of chunks, which cover all rules."""

    def visible(lines: Iterable[Of]) -> tuple[Of, ...]:
        return tuple(each for each in lines if each.rule in rules.rules)

    runners, pools = rules.runners(), {rule.pool_name for rule in rules.rules.values()}
    return replace(
        full,
        batches=tuple(each for each in full.batches if each.runner in runners),
        chunks={},
        pending=visible(full.pending),
        deferred_matches=visible(full.deferred_matches),
        rules_on_hold=visible(full.rules_on_hold),
        targets=visible(full.targets),
        overrides=visible(full.overrides),
        pools=tuple(each for each in full.pools if each.pool in pools),
        errors=(),
    )


def _streaming(runtime: Runtime, runner: str) -> StreamingRunner:
    lease = runtime.ledger.streaming.lease(runner)
    return StreamingRunner(runner, None, None) if lease is None else StreamingRunner(runner, lease.holder, lease.until)


def _errors(runtime: Runtime) -> tuple[RuleError, ...]:
    if runtime.settings.rules_from == "published":
        return ()  # the files were checked when they were published; this host may not have them
    try:
        runtime.rule_files()
    except RuleFileError as error:
        return error.errors
    return ()


def rules_on_hold(runtime: Runtime, rules: RuleSet) -> Iterator[RuleOnHold]:
    """Yield the rules on hold because routing or an expectation failed, or because a delivery blocks them."""
    for name, each in runtime.ledger.rules.list_on_hold().items():
        if name in rules.rules and rules.rules[name].version == each.version:
            yield each
    for name, hold in runtime.ledger.quality.holds().items():
        version = rules.rules[name].version if name in rules.rules else ""
        yield RuleOnHold(name, version, hold.reason, hold.since)
    for waiting in runtime.ledger.pending.waiting_targets():
        rule, since = rules.rules.get(waiting.rule), waiting.newest_on_hold_since
        if (
            rule is not None
            and since is not None
            and waiting.state == "on_hold"
            and delivery_on_hold_at(waiting.hold_reason)
        ):
            yield RuleOnHold(rule.name, rule.version, f"{waiting.hold_reason} of the target {waiting.target}", since)


def _pending_statuses(runtime: Runtime) -> list[PendingStatus]:
    """Return the counts of pending deliveries, including those taken by a batch, by rule, target, state and reason."""
    on_hold_for: dict[tuple[str, str], set[str]] = defaultdict(set)
    for waiting in runtime.ledger.pending.waiting_targets():
        if waiting.state == "on_hold":
            on_hold_for[waiting.rule, waiting.target].add(waiting.hold_reason)
    return [
        PendingStatus(
            row.rule,
            row.target,
            row.state,
            row.reason,
            row.count,
            next_due_at=row.next_due_at if row.state == "scheduled" else None,
            hold_reason=", ".join(sorted(on_hold_for[row.rule, row.target])) if row.state == "on_hold" else "",
        )
        for row in runtime.ledger.pending.counts()
    ]


def _deferred_match_statuses(runtime: Runtime, rules: RuleSet) -> list[DeferredMatchStatus]:
    """Return the counts of deferred matches, including those taken by a batch, by rule, state and reason."""
    rules_on_hold, overrides = runtime.ledger.rules.list_on_hold(), runtime.ledger.overrides.get_effective()
    groups: dict[tuple[str, PendingState, str], list[DeferredMatch]] = defaultdict(list)
    for each in runtime.ledger.deferred_matches.waiting():
        groups[each.rule, each.state, each.reason].append(each)
    return [
        DeferredMatchStatus(
            rule,
            state,
            reason,
            sum(each.count for each in group),
            since=min(each.made_at for each in group),
            next_due_at=min(each.due_at for each in group) if state == "scheduled" else None,
            hold_reason=(deferred_match_hold_reason(rules, rules_on_hold, {}, overrides, rule) or _POOL_OR_RUN)
            if state == "on_hold"
            else "",
        )
        for (rule, state, reason), group in sorted(groups.items())
    ]


@dataclass(frozen=True)
class StalledRunner:
    """A runner that plans no batch because a rule was moved to it; `why` says what it is waiting for or refuses."""

    runner: str
    why: str


def _stalled_runners(runtime: Runtime, rules: RuleSet) -> Iterator[StalledRunner]:
    """Yield the runners that refuse a rule that was moved to them, or are waiting for the old runner of the rule.

    A runner whose bus does not respond is skipped.
    """
    assigned = runtime.ledger.assignments.all()
    for runner, bus in rules.runners().items():
        own = rules.for_runner(runner)
        if not any(
            was.runner != runner or was.left for (rule, _), was in assigned.items() if rule in own.rules
        ):  # no rule was moved to this runner, so its bus need not be read
            continue
        try:
            with closing(runtime.open_source(rules.buses[bus])) as source:
                arriving = arrivals(runtime, own, runner, rules.buses[bus], source)
            for behind in transfer_of(runner, runtime.ledger.offsets.committed(runner), arriving).behind:
                yield StalledRunner(runner, f"{behind}. {_REMEDY}")
        except RuleMovedError as error:
            yield StalledRunner(runner, str(error))
        except BusError:
            continue


def streaming_process(runtime: Runtime, runner: str) -> str | None:
    """Return the process, as `host:number`, that holds the lease of a runner; None if no running process holds it."""
    lease = runtime.ledger.streaming.lease(runner)
    return None if lease is None or streaming_lease.is_gone(lease.holder) else lease.holder.rpartition(":")[0]


def pushes_at_work(runtime: Runtime, runner: str) -> tuple[str, list[str]] | None:
    """Return the batch that a runner is sending, and the processes (`host:number`) that are sending it.

    Returns None if no running process is sending one.
    """
    batch = runtime.ledger.batches.unfinished(runner)
    if batch is None:
        return None
    workers = {each.worker for each in runtime.ledger.chunks.live_claims(batch.batch_id)}
    alive = sorted(each for each in workers if not is_gone(each))
    return (batch.batch_id, alive) if alive else None
