"""Returns the metrics of an installation, from a snapshot of its ledger and the state of its buses and store."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate

from eventbridge.errors import BusError, StoreError, UserError
from eventbridge.model.partition import Partition
from eventbridge.model.stat import (
    AGAIN,
    BOUNDS_MS,
    DELIVERY_OUTCOMES,
    EVENT_OUTCOMES,
    STAGE_OUTCOMES,
    Family,
    LedgerSnapshot,
    MetricKind,
    Sample,
    Stat,
    StatKey,
)
from eventbridge.policy.breaker import display_state
from eventbridge.rules import RuleSet
from eventbridge.runtime.quotas import owner_statuses, store_quota
from eventbridge.runtime.runtime import Runtime
from eventbridge.version import __version__

log = logging.getLogger(__name__)
_PREFIX = "eventbridge_"
_BOUNDS = (*(bound / 1_000 for bound in BOUNDS_MS), math.inf)
_PENDING_STATES = ("scheduled", "on_hold", "taken")
_TARGET_STATES = ("paused", "degraded", "half-open", "disabled")
_TEXTS = {
    "pending": "Pending deliveries of the rules of an owner, if it has a quota for them.",
    "pending_max": "Number of pending deliveries at which new matches of the owner's rules are deferred.",
    "stored": "Bytes in the store from the buses of an owner, if it has a quota for them.",
    "stored_bytes": "Stored bytes at which EventBridge stops reading events from the owner's buses.",
}
_NAMES = {"stored": "stored_bytes", "stored_bytes": "stored_quota_bytes"}


def metrics(runtime: Runtime, *, of_targets: bool = False) -> list[Family]:
    """Return the metrics of an installation; if `of_targets`, with counters for each target of each rule.

    The values from the ledger come from one snapshot, except those of owners and of the store's quota. The ends of
    buses are read after the snapshot, so that no lag is too small. For a bus that does not respond,
    `eventbridge_bus_up` is 0, and there is no lag.
    """
    snapshot = runtime.ledger.snapshots.read(of_targets=of_targets)
    rules = runtime.rule_set()
    ends = _ends(runtime, rules)
    return [
        _family("info", "gauge", "The version of EventBridge.", ("version",), [Sample((__version__,), 1.0)]),
        *_bus_families(_bus_stats_with_zeros(snapshot, rules)),
        *_target_families([each for each in snapshot.stats if each.key.scope == "target"], asked_for=of_targets),
        *_runner_families(snapshot, rules, ends),
        *_waiting_families(snapshot, rules),
        *_installation_families(runtime, snapshot),
        *_owner_metrics(runtime, rules),
    ]


@dataclass(frozen=True)
class _Ends:
    """The ends of the partitions of each bus, None if the bus did not respond."""

    by_bus: Mapping[str, Mapping[Partition, int] | None]


def _ends(runtime: Runtime, rules: RuleSet) -> _Ends:
    found: dict[str, Mapping[Partition, int] | None] = {}
    for name in sorted(set(rules.runners().values())):
        try:
            with closing(runtime.open_source(rules.buses[name])) as source:
                found[name] = source.ends()
        except (BusError, UserError) as error:
            log.warning("metrics: the bus %s does not respond: %s", name, error)
            found[name] = None
    return _Ends(found)


def _family(name: str, kind: MetricKind, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Family:
    return Family(_PREFIX + name, kind, text, labels, tuple(samples))


def _bus_stats_with_zeros(snapshot: LedgerSnapshot, rules: RuleSet) -> list[Stat]:
    """Return the stats of buses, with zeros for missing outcomes.

    Without the zeros, Prometheus would not count the first increase of a new series in a rate.
    """
    found = {each.key: each for each in snapshot.stats if each.key.scope == "bus"}
    for bus in set(rules.runners().values()):
        for outcome in (*DELIVERY_OUTCOMES, *EVENT_OUTCOMES, *STAGE_OUTCOMES):
            key = StatKey("bus", bus, "", "", outcome)
            found.setdefault(key, Stat(key))
    return sorted(found.values(), key=lambda each: (each.key.bus, each.key.outcome))


def _bus_families(stats: list[Stat]) -> Iterator[Family]:
    deliveries = [each for each in stats if each.key.outcome in DELIVERY_OUTCOMES]
    events = [each for each in stats if each.key.outcome in EVENT_OUTCOMES]
    yield _family(
        "events_total",
        "counter",
        "Events that committed batches landed, by outcome; tombstone: messages without a body; "
        "gap: offsets that the log no longer had.",
        ("bus", "status"),
        [Sample((each.key.bus, each.key.outcome), each.count) for each in events],
    )
    yield _summed("event_bytes_total", "Bytes of events that committed batches landed.", events, "size")
    yield _family(
        "deliveries_total",
        "counter",
        "Deliveries of committed batches, by status; pending counts each time that one is deferred.",
        ("bus", "status"),
        [Sample((each.key.bus, each.key.outcome), each.count) for each in deliveries],
    )
    yield _summed("matched_total", "Matched deliveries.", deliveries, "matched")
    yield _summed("delivery_bytes_total", "Payload bytes of deliveries, counted in each batch.", deliveries, "size")
    yield _summed("cpu_seconds_total", "CPU time of routing and pushing.", deliveries + events, "cpu", 1e-6)
    yield _family(
        "publish_to_delivered_seconds",
        "histogram",
        "Time from published to delivered.",
        ("bus",),
        [_histogram((each.key.bus,), each) for each in deliveries if each.key.outcome == "delivered"],
    )
    yield _family(
        "stage_seconds",
        "histogram",
        "Time of the parts of a batch: planned to routed, to the end of its last push, to committed.",
        ("bus", "stage"),
        [
            _histogram((each.key.bus, each.key.outcome.removeprefix("stage_")), each)
            for each in stats
            if each.key.outcome in STAGE_OUTCOMES
        ],
    )


def _summed(name: str, text: str, stats: Iterable[Stat], field: str, unit: float = 1.0) -> Family:
    sums: Counter[str] = Counter()
    for each in stats:
        sums[each.key.bus] += getattr(each, field)
    return _family(name, "counter", text, ("bus",), [Sample((bus,), sum_ * unit) for bus, sum_ in sorted(sums.items())])


def _histogram(labels: tuple[str, ...], stat: Stat) -> Sample:
    buckets = tuple(zip(_BOUNDS, accumulate(stat.buckets), strict=True))
    return Sample(labels, stat.latency / 1e6, buckets)


def _target_families(stats: list[Stat], *, asked_for: bool) -> Iterator[Family]:
    if not asked_for:
        return
    labels = ("bus", "rule", "target", "status")

    def counter(name: str, text: str, field: str, unit: float = 1.0) -> Family:
        samples = [
            Sample((each.key.bus, each.key.rule, each.key.target, each.key.outcome), getattr(each, field) * unit)
            for each in stats
        ]
        return _family(name, "counter", text, labels, samples)

    yield counter("target_deliveries_total", "Deliveries of committed batches, by target.", "count")
    yield counter("target_matched_total", "Matched deliveries, by target.", "matched")
    yield counter("target_bytes_total", "Payload bytes, by target.", "size")
    yield counter("target_cpu_seconds_total", "CPU time of routing and pushing, by target.", "cpu", 1e-6)


def _runner_families(snapshot: LedgerSnapshot, rules: RuleSet, ends: _Ends) -> Iterator[Family]:
    names = ("runner", "bus")
    lag: list[Sample] = []
    in_flight: list[Sample] = []
    available: list[Sample] = []
    changed: list[Sample] = []
    pulled = {(runner, part.partition): part.end for runner, part in snapshot.ranges}
    for runner, bus in sorted(rules.runners().items()):
        rows = [row for row in snapshot.offsets if row.group == runner and row.bus == bus]
        if not rows:
            continue
        changed.append(Sample((runner, bus), max(row.changed_at for row in rows).timestamp()))
        taken = {row.partition: max(row.offset, pulled.get((runner, row.partition), row.offset)) for row in rows}
        in_flight.append(Sample((runner, bus), sum(taken[row.partition] - row.offset for row in rows)))
        known = ends.by_bus.get(bus)
        if known is None:
            continue
        topics = rules.buses[bus].source.topics
        counted = [
            (row, max(known.get(row.partition, row.offset), row.offset))
            for row in rows
            if row.partition.topic in topics
        ]
        lag.append(Sample((runner, bus), sum(end - row.offset for row, end in counted)))
        available.append(Sample((runner, bus), sum(max(0, end - taken[row.partition]) for row, end in counted)))
    yield _family("lag_events", "gauge", "Events of the bus that are in no committed batch.", names, lag)
    yield _family("in_flight_events", "gauge", "Events of uncommitted batches.", names, in_flight)
    yield _family("available_events", "gauge", "Events that are in no batch yet.", names, available)
    yield _family(
        "runner_moved_timestamp_seconds", "gauge", "Time of a runner's last commit, or of its start.", names, changed
    )
    up = [Sample((bus,), float(known is not None)) for bus, known in sorted(ends.by_bus.items())]
    yield _family("bus_up", "gauge", "1 if the bus responded, else 0.", ("bus",), up)
    ages: dict[tuple[str, str], float] = {}
    for batch in snapshot.open_batches:
        age = (snapshot.now - batch.planned_at).total_seconds()
        key = (batch.runner, batch.kind)
        ages[key] = max(ages.get(key, 0.0), age)
    yield _family(
        "open_batch_age_seconds",
        "gauge",
        "Age of the oldest uncommitted batch.",
        ("runner", "kind"),
        [Sample(key, age) for key, age in sorted(ages.items())],
    )


def _waiting_families(snapshot: LedgerSnapshot, rules: RuleSet) -> Iterator[Family]:
    waiting: Counter[tuple[str, str]] = Counter()
    for each in snapshot.pending:
        rule = rules.rules.get(each.rule)
        waiting["" if rule is None else rule.bus, each.state] += each.count
    for bus in sorted(set(rules.runners().values())):
        waiting.update({(bus, state): 0 for state in _PENDING_STATES})
    yield _family(
        "pending_deliveries",
        "gauge",
        "Pending deliveries: scheduled for another attempt, on hold, or taken by a batch.",
        ("bus", "state"),
        [Sample(key, count) for key, count in sorted(waiting.items())],
    )
    shown = [(each, display_state(each, snapshot.now)) for each in snapshot.targets]
    states = Counter[str](state for _, state in shown)
    yield _family(
        "targets",
        "gauge",
        "Targets that are not ok, by state: paused by a response 429, or the state of the breaker.",
        ("state",),
        [Sample((state,), states[state]) for state in _TARGET_STATES],
    )
    yield _family(
        "target_not_ok",
        "gauge",
        "1 for each target that is not ok.",
        ("rule", "target", "state"),
        [Sample((each.rule, each.target, state), 1.0) for each, state in shown if state != "ok"],
    )
    yield _family(
        "reconciliation_difference",
        "gauge",
        "Matched deliveries that are neither delivered nor dead-lettered nor pending; any value but 0 is an error.",
        (),
        [Sample((), reconciliation_difference(snapshot))],
    )


def reconciliation_difference(snapshot: LedgerSnapshot) -> int:
    """Return the number of matched or redriven deliveries that are neither delivered, dead-lettered nor pending."""
    owed = 0
    for each in snapshot.stats:
        if each.key.scope == "bus":
            owed += each.matched + (each.count if each.key.outcome == AGAIN else 0)
            owed -= each.count if each.key.outcome in ("delivered", "dead_lettered") else 0
    return owed - sum(each.count for each in snapshot.pending)


def _installation_families(runtime: Runtime, snapshot: LedgerSnapshot) -> Iterator[Family]:
    stopped = Sample((), float(snapshot.ingestion_stopped))
    yield _family(
        "ingestion_stopped",
        "gauge",
        "1 while ingestion is stopped because free disk space is too low or the store is at its quota.",
        (),
        [stopped],
    )
    yield _family(
        "airflow_changes_dropped_total",
        "counter",
        "Changes in Airflow that its processes dropped instead of publishing them.",
        (),
        [Sample((), float(snapshot.dropped.changes if snapshot.dropped is not None else 0))],
    )
    skew = (snapshot.now - snapshot.host_now).total_seconds()
    yield _family(
        "clock_skew_seconds",
        "gauge",
        "The ledger's clock minus the clock of the server's host.",
        (),
        [Sample((), skew)],
    )
    try:
        free = runtime.store.free_bytes()
    except StoreError as error:
        log.warning("metrics: the store does not respond: %s", error)
        free = None
    samples = [] if free is None else [Sample((), float(free))]
    yield _family("store_free_bytes", "gauge", "Free space of the store, unless it is unlimited.", (), samples)
    least = float(runtime.settings.disk_min_free_size)
    yield _family(
        "store_free_minimum_bytes",
        "gauge",
        "Ingestion stops below this free space.",
        (),
        [Sample((), least)] if samples else [],
    )
    quota = store_quota(runtime)
    used, most = ([], []) if quota is None else ([Sample((), float(quota.used))], [Sample((), float(quota.quota))])
    yield _family("store_bytes", "gauge", "Size of the store, if it has a quota.", (), used)
    yield _family("store_quota_bytes", "gauge", "Ingestion stops at this size of the store.", (), most)


def _owner_metrics(runtime: Runtime, rules: RuleSet) -> Iterator[Family]:
    """Yield the usage and quotas of owners with quotas; the families have no samples if no owner has one."""
    found = owner_statuses(runtime, rules)
    for field, text in _TEXTS.items():
        quota = "pending_max" if field.startswith("pending") else "stored_bytes"
        samples = [Sample((each.owner,), float(getattr(each, field))) for each in found if getattr(each, quota)]
        yield Family(f"eventbridge_owner_{_NAMES.get(field, field)}", "gauge", text, ("owner",), tuple(samples))
