"""The books of a batch: what must hold before its offsets may move. Pure: facts in, differences out.

The equations are design invariant 1, in every kind of batch:

    range   = read + recorded gaps
    read    = malformed + duplicate + tombstones + valid
    valid   = rows in over route's slices + unroutable
    matched = delivered + pending + dead-lettered      (per rule and target, as fingerprints)
    dead letters of a target with a dead letter queue = copies pending     (outside all other sums)
    candidate events of a budgeted rule's pattern, or of the deferred matches taken = routed + referred    (per rule,
    likewise) routed = admitted (there are deliveries of it) + rejected by `where`    (per budgeted rule, likewise)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eventbridge.event.ids import Fingerprint

Fingerprints = Mapping[str, Fingerprint]


@dataclass(frozen=True)
class Books:
    """What the files of one batch say, each number counted from the files themselves.

    Mappings are keyed by `<rule>/<target>`; `candidate_events`, `routed`, `admitted`, `rejected` and `referred`,
    fingerprints over the places of budgeted rules' events, by rule. In a batch that took up pending deliveries
    `matched` is what it took, `recorded` what its chunks name, and the event counts are zero.
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
    unproven: int = 0  # settled as delivered without an outcome that says so
    matched: Fingerprints = field(default_factory=dict)
    recorded: Fingerprints = field(default_factory=dict)
    candidate_events: Fingerprints = field(default_factory=dict)
    routed: Fingerprints = field(default_factory=dict)
    admitted: Fingerprints = field(default_factory=dict)
    rejected: Fingerprints = field(default_factory=dict)
    referred: Fingerprints = field(default_factory=dict)
    delivered: Fingerprints = field(default_factory=dict)
    pending_by_settlement: Fingerprints = field(default_factory=dict)
    pending: Fingerprints = field(default_factory=dict)
    dead_by_settlement: Fingerprints = field(default_factory=dict)
    dead: Fingerprints = field(default_factory=dict)
    copies_due: Fingerprints = field(default_factory=dict)  # for dead letter queues: outside the other sums
    copies: Fingerprints = field(default_factory=dict)
    transform_failures: Mapping[str, int] = field(default_factory=dict)  # of `dead`, how many for that reason


@dataclass(frozen=True)
class Difference:
    """One equation that does not hold: what it is about, and both sides."""

    subject: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.found}"


def differences(books: Books) -> list[Difference]:
    """Return every equation of the books that does not hold; an empty list = every event is accounted for."""
    return [*_event_differences(books), *_reference_differences(books), *_delivery_differences(books)]


def settles_all(books: Books) -> bool:
    """Return whether the settlement gives exactly the deliveries that the batch's files name a verdict each."""
    settled = _sums(books.delivered, books.pending_by_settlement, books.dead_by_settlement)
    return settled in (_sums(books.matched), _sums(books.recorded))


def _sums(*parts: Fingerprints) -> dict[str, Fingerprint]:
    """Return the sums of fingerprints with the same key, without those of nothing."""
    keys = {key for part in parts for key in part}
    nothing = Fingerprint()
    sums = {key: sum((part.get(key, nothing) for part in parts), start=nothing) for key in keys}
    return {key: value for key, value in sums.items() if value != nothing}


def _event_differences(books: Books) -> Iterator[Difference]:
    landed = books.malformed + books.duplicate + books.tombstone + books.valid
    equations = [
        ("events in the ranges = read + gaps", books.range_total, books.read + books.gaps),
        ("read = malformed + duplicate + tombstones + valid", books.read, landed),
        ("valid = routed + unroutable", books.valid, books.rows_in + books.unroutable),
        ("malformed = dead letters Malformed", books.malformed, books.malformed_records),
        ("unroutable = dead letters RouteFailed", books.unroutable, books.unroutable_records),
        ("delivered without a proof", 0, books.unproven),
    ]
    for subject, expected, found in equations:
        if expected != found:
            yield Difference(subject, str(expected), str(found))


def _reference_differences(books: Books) -> Iterator[Difference]:
    nothing = Fingerprint()
    for rule in sorted(set(books.candidate_events) | set(books.routed) | set(books.admitted) | set(books.referred)):
        routed = books.routed.get(rule, nothing)
        equations = [
            ("candidate events = routed + referred", books.candidate_events, routed, books.referred),
            ("routed = admitted + rejected", books.routed, books.admitted.get(rule, nothing), books.rejected),
        ]
        for subject, whole, part, rest in equations:
            expected, found = whole.get(rule, nothing), part + rest.get(rule, nothing)
            if expected != found:
                yield Difference(f"{rule}: {subject}", _show(expected), _show(found))


def _delivery_differences(books: Books) -> Iterator[Difference]:
    nothing = Fingerprint()
    keys = set(books.matched) | set(books.recorded) | set(books.delivered) | set(books.pending) | set(books.dead)
    for key in sorted(set(books.copies_due) | set(books.copies)):
        due, copies = books.copies_due.get(key, nothing), books.copies.get(key, nothing)
        if due != copies:
            yield Difference(f"{key}: dead letters = copies pending", _show(due), _show(copies))
    for key in sorted(keys | set(books.pending_by_settlement) | set(books.dead_by_settlement)):
        matched = books.matched.get(key, nothing)
        pending, dead = books.pending.get(key, nothing), books.dead.get(key, nothing)
        equations = [
            ("matched = recorded by route", matched, books.recorded.get(key, nothing)),
            (
                "pending by the settlement = pending in the ledger",
                books.pending_by_settlement.get(key, nothing),
                pending,
            ),
            ("dead-lettered by the settlement = dead letters", books.dead_by_settlement.get(key, nothing), dead),
            (
                "matched = delivered + pending + dead-lettered",
                matched,
                books.delivered.get(key, nothing) + pending + dead,
            ),
        ]
        for subject, expected, found in equations:
            if expected != found:
                yield Difference(f"{key}: {subject}", _show(expected), _show(found))


def _show(fingerprint: Fingerprint) -> str:
    return f"{fingerprint.count} ({fingerprint.sum:016x}, {fingerprint.xor:016x})"
