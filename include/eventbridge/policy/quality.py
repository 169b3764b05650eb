"""Decides whether a batch meets the expectations of its rules, and whether the measures of an hour are normal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eventbridge.event.ids import Fingerprint
from eventbridge.model.quality import Measure, Subject
from eventbridge.policy.reconciliation import Reconciliation
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.model import Bounds, Expect, FieldExpectation

_NOTHING = Fingerprint()

#: The measures whose bounds are derived from the same hour of other days.
VOLUMES = ("events", "deliveries")

#: The volumes of a subject in the same hour of earlier, checked days, by (subject, measure).
History = Mapping[tuple[Subject, str], Sequence[float]]

#: Measures of event values.
VALUE_MEASURES = frozenset({"least_value", "greatest_value"})


@dataclass(frozen=True)
class RuleCounts:
    """The counts of a batch for one rule: matched events, and deliveries by outcome."""

    matches: int
    deliveries: int
    delivered: int
    dead_letters: int
    transform_failures: int


def failed_expectations(rules: RuleSet, reconciliation: Reconciliation) -> dict[str, str]:
    """Return the failures of each rule's `expect` in a batch that routed new events, by rule.

    A rule that deferred a match in this batch is not checked, because its counts are incomplete.
    """
    failed = {}
    for rule in rules.with_field("expect"):
        if rule.expect is None or not rule.enabled or rule.name in reconciliation.deferred:
            continue
        if found := "; ".join(_failures(rule.expect, counts_of(reconciliation, rule.name, rule.targets))):
            failed[rule.name] = found
    return failed


def counts_of(reconciliation: Reconciliation, rule: str, targets: Mapping[str, Target]) -> RuleCounts:
    """Return a rule's counts in the reconciliation of a batch; each matched event has one delivery for each target.

    Shadows do not count, because any response settles their deliveries.
    """
    keys = [f"{rule}/{name}" for name, target in targets.items() if target.shadow_of is None]
    matched = [reconciliation.matched.get(key, _NOTHING).count for key in keys]
    return RuleCounts(
        matches=max(matched, default=0),
        deliveries=sum(matched),
        delivered=sum(reconciliation.delivered.get(key, _NOTHING).count for key in keys),
        dead_letters=sum(reconciliation.dead.get(key, _NOTHING).count for key in keys),
        transform_failures=sum(reconciliation.transform_failures.get(key, 0) for key in keys),
    )


def rate(part: int, whole: int) -> float:
    """Return `part` as a share of `whole`; 0 if `whole` is 0."""
    return part / whole if whole else 0.0


def _failures(expect: Expect, counts: RuleCounts) -> Iterator[str]:
    settled = counts.delivered + counts.dead_letters
    for name, bounds, value in (
        ("matches", expect.matches, float(counts.matches)),
        ("dead_letter_rate", expect.dead_letter_rate, rate(counts.dead_letters, settled)),
        ("transform_failure_rate", expect.transform_failure_rate, rate(counts.transform_failures, counts.deliveries)),
    ):
        if bounds is not None and not bounds.is_met_by(value):
            yield broken(name, bounds, value)


def broken(name: str, bounds: Bounds, value: float) -> str:
    """Return the message of a failed expectation, such as `matches is 12, expected at most 10`."""
    ends = (("at least", bounds.at_least), ("at most", bounds.at_most))
    expected = " and ".join(f"{word} {number_text(end)}" for word, end in ends if end is not None)
    return f"{name} is {number_text(value)}, expected {expected}"


def number_text(value: float) -> str:
    """Return a whole number with all its digits, any other number with four significant digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"


@dataclass(frozen=True)
class QualityLimits:
    """The largest malformed, duplicate, dead-lettered and pending shares of an hour, each from 0 to 1.

    A volume may be `volume_tolerance` (a share) below the minimum and above the maximum of the same hour on earlier
    days, once at least `volume_days` of those were checked.
    """

    malformed_rate: float
    duplicate_rate: float
    dead_letter_rate: float
    pending_rate: float
    volume_tolerance: float
    volume_days: int


@dataclass
class BusCounts:
    """The counts of messages read from a bus in an hour."""

    events: int = 0
    malformed: int = 0
    duplicate: int = 0


@dataclass
class TargetCounts:
    """The outcomes of a target's deliveries in an hour; `dead_letters` counts them by reason.

    `matched` and `pending` count new events; `delivered` and `dead_letters` also count retries.
    """

    matched: int = 0
    pending: int = 0
    delivered: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)


@dataclass
class FieldCounts:
    """The counts of values at one path of an hour's matched events; `least` and `most` are its extreme numbers."""

    events: int = 0
    nulls: int = 0
    numbers: int = 0
    least: float | None = None
    most: float | None = None

    def add(self, other: FieldCounts) -> None:
        """Add the counts of further events."""
        self.events += other.events
        self.nulls += other.nulls
        self.numbers += other.numbers
        self.least = min((each for each in (self.least, other.least) if each is not None), default=None)
        self.most = max((each for each in (self.most, other.most) if each is not None), default=None)


def measures_of(
    buses: Mapping[str, BusCounts],
    targets: Mapping[tuple[str, str], TargetCounts],
    fields: Mapping[tuple[str, str], tuple[FieldExpectation, FieldCounts]],
    history: History,
    limits: QualityLimits,
) -> list[Measure]:
    """Return the measures of an hour: for each bus, each (rule, target) and each (rule, path)."""
    found: list[Measure] = []
    for bus, counts in sorted(buses.items()):
        found += _bus_measures(Subject("bus", bus), counts, history, limits)
    for (rule, target), sums in sorted(targets.items()):
        found += _target_measures(Subject("target", rule, target), sums, history, limits)
    for (rule, path), (expected, values) in sorted(fields.items(), key=lambda each: each[0]):
        found += _field_measures(Subject("field", rule, path), expected, values)
    return found


def _bus_measures(bus: Subject, counts: BusCounts, history: History, limits: QualityLimits) -> Iterator[Measure]:
    yield _volume(bus, "events", counts.events, history, limits)
    yield Measure(bus, "malformed_rate", rate(counts.malformed, counts.events), at_most=limits.malformed_rate)
    yield Measure(bus, "duplicate_rate", rate(counts.duplicate, counts.events), at_most=limits.duplicate_rate)


def _target_measures(
    target: Subject, counts: TargetCounts, history: History, limits: QualityLimits
) -> Iterator[Measure]:
    dead = sum(counts.dead_letters.values())
    settled = counts.delivered + dead
    yield _volume(target, "deliveries", counts.matched, history, limits)
    yield Measure(target, "delivered_rate", rate(counts.delivered, settled))
    yield Measure(target, "pending_rate", rate(counts.pending, counts.matched), at_most=limits.pending_rate)
    yield Measure(target, "dead_letter_rate", rate(dead, settled), at_most=limits.dead_letter_rate)


def _field_measures(subject: Subject, expected: FieldExpectation, counts: FieldCounts) -> Iterator[Measure]:
    if (nulls := expected.null_rate) is not None:
        yield Measure(subject, "null_rate", rate(counts.nulls, counts.events), nulls.at_least, nulls.at_most)
    if (value := expected.value) is not None:
        others = counts.events - counts.nulls - counts.numbers
        yield Measure(subject, "not_a_number_rate", rate(others, counts.events), at_most=0.0)
        if counts.least is not None and counts.most is not None:
            yield Measure(subject, "least_value", counts.least, at_least=value.at_least)
            yield Measure(subject, "greatest_value", counts.most, at_most=value.at_most)


def _volume(subject: Subject, name: str, count: int, history: History, limits: QualityLimits) -> Measure:
    before = history.get((subject, name), ())
    if len(before) < limits.volume_days:
        note = f"too little history: {len(before)} of {limits.volume_days} days"
        return Measure(subject, name, float(count), note=note)
    at_least = min(before) * (1.0 - limits.volume_tolerance)
    return Measure(subject, name, float(count), at_least, max(before) * (1.0 + limits.volume_tolerance))


def failed_rules(failures: Iterable[Measure]) -> dict[str, str]:
    """Return the failures of each rule's `expect`, by rule. Only these failures put a rule on hold."""
    found: dict[str, list[str]] = {}
    for each in failures:
        if each.subject.kind == "field":
            found.setdefault(each.subject.name, []).append(f"{each.subject.part}: {_message(each)}")
    return {rule: "; ".join(texts) for rule, texts in found.items()}


def failure_message(failure: Measure) -> str:
    """Return the message of a failure, such as `orders: events is 12, expected at least 800`."""
    return f"{failure.subject}: {_message(failure)}"


def _message(failure: Measure) -> str:
    return broken(failure.name, Bounds(at_least=failure.at_least, at_most=failure.at_most), failure.value)
