"""Checks the reconciliation of a batch: the equations that must hold before its offsets move.

The equations are design invariant 1, and hold for every kind of batch:

    range   = read + recorded gaps
    read    = malformed + duplicate + tombstones + valid
    valid   = rows in over route's slices + unroutable
    matched = delivered + pending + dead-lettered      (per rule and target, as fingerprints)
    dead letters of a target with a dead letter queue = copies pending     (outside all other sums)
    candidates = routed + deferred                     (per budgeted rule, as fingerprints)
    routed  = admitted + rejected by `where`           (per budgeted rule, as fingerprints)

Candidates are the events that a budgeted rule's pattern matches, or those of the deferred matches that the batch took.
An admitted event has deliveries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eventbridge.event.ids import Fingerprint

Fingerprints = Mapping[str, Fingerprint]


@dataclass(frozen=True)
class Reconciliation:
    """The contents of the files of one batch; each number is counted from the files themselves.

    Mappings are keyed by `<rule>/<target>`, except `candidate_events`, `routed`, `admitted`, `rejected` and `deferred`,
    which are keyed by rule and hold fingerprints of the rows of budgeted rules' events. In a batch that took pending
    deliveries, `matched` holds the deliveries taken, `recorded` holds those in its chunks, and the event counts are
    zero.
    """

    range_total: int = 0
    gaps: int = 0
    read: int = 0
    malformed: int = 0
    duplicate: int = 0
    tombstone: int = 0
    valid: int = 0
    rows_in: int = 0
    unroutable: int = 0
    malformed_records: int = 0
    unroutable_records: int = 0
    unproven: int = 0  # deliveries settled as delivered without an outcome that proves it
    matched: Fingerprints = field(default_factory=dict)
    recorded: Fingerprints = field(default_factory=dict)
    candidate_events: Fingerprints = field(default_factory=dict)
    routed: Fingerprints = field(default_factory=dict)
    admitted: Fingerprints = field(default_factory=dict)
    rejected: Fingerprints = field(default_factory=dict)
    deferred: Fingerprints = field(default_factory=dict)
    delivered: Fingerprints = field(default_factory=dict)
    pending_by_settlement: Fingerprints = field(default_factory=dict)
    pending: Fingerprints = field(default_factory=dict)
    dead_by_settlement: Fingerprints = field(default_factory=dict)
    dead: Fingerprints = field(default_factory=dict)
    copies_due: Fingerprints = field(default_factory=dict)  # for dead letter queues; not part of the other sums
    copies: Fingerprints = field(default_factory=dict)
    transform_failures: Mapping[str, int] = field(default_factory=dict)  # how many of `dead` have this reason


@dataclass(frozen=True)
class Difference:
    """A violated equation: its subject and both sides."""

    subject: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.found}"


def differences(reconciliation: Reconciliation) -> list[Difference]:
    """Return a difference for every equation that does not hold. If there is none, every event is accounted for."""
    return [
        *_event_differences(reconciliation),
        *_reference_differences(reconciliation),
        *_delivery_differences(reconciliation),
    ]


def settles_all(reconciliation: Reconciliation) -> bool:
    """Return whether the settlement gives exactly one status to each delivery in the batch's files."""
    settled = _sums(reconciliation.delivered, reconciliation.pending_by_settlement, reconciliation.dead_by_settlement)
    return settled in (_sums(reconciliation.matched), _sums(reconciliation.recorded))


def _sums(*parts: Fingerprints) -> dict[str, Fingerprint]:
    """Return the sums of fingerprints with the same key, without empty sums."""
    keys = {key for part in parts for key in part}
    nothing = Fingerprint()
    sums = {key: sum((part.get(key, nothing) for part in parts), start=nothing) for key in keys}
    return {key: value for key, value in sums.items() if value != nothing}


def _event_differences(reconciliation: Reconciliation) -> Iterator[Difference]:
    landed = reconciliation.malformed + reconciliation.duplicate + reconciliation.tombstone + reconciliation.valid
    equations = [
        ("events in the ranges = read + gaps", reconciliation.range_total, reconciliation.read + reconciliation.gaps),
        ("read = malformed + duplicate + tombstones + valid", reconciliation.read, landed),
        ("valid = routed + unroutable", reconciliation.valid, reconciliation.rows_in + reconciliation.unroutable),
        ("malformed = dead letters malformed", reconciliation.malformed, reconciliation.malformed_records),
        ("unroutable = dead letters route_failed", reconciliation.unroutable, reconciliation.unroutable_records),
        ("delivered without a proof", 0, reconciliation.unproven),
    ]
    for subject, expected, found in equations:
        if expected != found:
            yield Difference(subject, str(expected), str(found))


def _reference_differences(reconciliation: Reconciliation) -> Iterator[Difference]:
    nothing = Fingerprint()
    for rule in sorted(
        set(reconciliation.candidate_events)
        | set(reconciliation.routed)
        | set(reconciliation.admitted)
        | set(reconciliation.deferred)
    ):
        routed = reconciliation.routed.get(rule, nothing)
        equations = [
            ("candidate events = routed + deferred", reconciliation.candidate_events, routed, reconciliation.deferred),
            (
                "routed = admitted + rejected",
                reconciliation.routed,
                reconciliation.admitted.get(rule, nothing),
                reconciliation.rejected,
            ),
        ]
        for subject, whole, part, rest in equations:
            expected, found = whole.get(rule, nothing), part + rest.get(rule, nothing)
            if expected != found:
                yield Difference(f"{rule}: {subject}", _show(expected), _show(found))


def _delivery_differences(reconciliation: Reconciliation) -> Iterator[Difference]:
    nothing = Fingerprint()
    keys = (
        set(reconciliation.matched)
        | set(reconciliation.recorded)
        | set(reconciliation.delivered)
        | set(reconciliation.pending)
        | set(reconciliation.dead)
    )
    for key in sorted(set(reconciliation.copies_due) | set(reconciliation.copies)):
        due, copies = reconciliation.copies_due.get(key, nothing), reconciliation.copies.get(key, nothing)
        if due != copies:
            yield Difference(f"{key}: dead letters = copies pending", _show(due), _show(copies))
    for key in sorted(keys | set(reconciliation.pending_by_settlement) | set(reconciliation.dead_by_settlement)):
        matched = reconciliation.matched.get(key, nothing)
        pending, dead = reconciliation.pending.get(key, nothing), reconciliation.dead.get(key, nothing)
        equations = [
            ("matched = recorded by route", matched, reconciliation.recorded.get(key, nothing)),
            (
                "pending by the settlement = pending in the ledger",
                reconciliation.pending_by_settlement.get(key, nothing),
                pending,
            ),
            (
                "dead-lettered by the settlement = dead letters",
                reconciliation.dead_by_settlement.get(key, nothing),
                dead,
            ),
            (
                "matched = delivered + pending + dead-lettered",
                matched,
                reconciliation.delivered.get(key, nothing) + pending + dead,
            ),
        ]
        for subject, expected, found in equations:
            if expected != found:
                yield Difference(f"{key}: {subject}", _show(expected), _show(found))


def _show(fingerprint: Fingerprint) -> str:
    return f"{fingerprint.count} ({fingerprint.sum:016x}, {fingerprint.xor:016x})"
