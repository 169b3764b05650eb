"""A simple model and chosen cases show which data of a batch retention may delete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbridge.model.batch import Batch
from eventbridge.model.redelivery import Replay
from eventbridge.model.storage import STEPS, Need, is_kept
from eventbridge.policy.retention import LEAST_AGE, Keeping, Retention, keeping, needs_of_requests

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
MONTH = Retention.from_ages(archive=30 * DAY, deliveries=7 * DAY, dead_letters=90 * DAY, manifests=400 * DAY)

ages = st.floats(0, 500).map(lambda days: days * DAY)
kinds = st.sampled_from(["normal", "retry", "replay", "redrive"])
steps = st.sampled_from(STEPS)
retentions = st.builds(Retention.from_ages, archive=ages, deliveries=ages, dead_letters=ages, manifests=ages)


def a_batch(age: timedelta, **changes: object) -> Batch:
    """Return a committed batch of an age."""
    fields = {"kind": "normal", "runner": "orders", "bus": "orders", "state": "committed", "rule_set": "cafe"}
    return Batch(**{"batch_id": "batch", "planned_at": NOW - age, **fields, **changes})  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(ages, kinds, steps, retentions, st.frozensets(steps))
def test_a_step_is_taken_if_it_is_due_and_no_earlier_data_is_needed(
    age: timedelta, kind: str, kept: str, retention: Retention, needed: frozenset[str]
) -> None:
    """The model takes the next step while it is old enough and no earlier data is needed."""
    batch = a_batch(age, kind=kind, kept=kept)

    found = keeping(batch, NOW, retention, [Need(what, "x") for what in needed])  # type: ignore[arg-type]

    limits = {
        "all": retention.deliveries,
        "archive": retention.archive if kind == "normal" else retention.deliveries,
        "dead_letters": retention.dead_letters,
        "manifest": retention.manifests,
    }
    expected = kept
    while expected in limits and age >= limits[expected] and expected not in needed:
        expected = STEPS[STEPS.index(expected) + 1]  # type: ignore[arg-type]
    held = expected in limits and age >= limits[expected]
    assert found == Keeping(expected, "x" if held else "")  # type: ignore[arg-type]
    assert is_kept(kept, found.kept), "removed data never comes back"


@given(ages, retentions)
def test_nothing_goes_within_a_day(age: timedelta, retention: Retention) -> None:
    """Nothing is deleted within a day, and each kind of record is kept at least as long as the previous one."""
    assert LEAST_AGE <= retention.deliveries <= retention.archive <= retention.dead_letters <= retention.manifests
    if age < LEAST_AGE:
        assert keeping(a_batch(age), NOW, retention, []).kept == "all"


@pytest.mark.parametrize(
    ("days", "kind", "kept"),
    [
        (6.9, "normal", "all"),
        (7, "normal", "archive"),
        (7, "replay", "dead_letters"),
        (30, "normal", "dead_letters"),
        (90, "retry", "manifest"),
        (400, "normal", "nothing"),
    ],
)
def test_a_kind_of_record_goes_at_its_time(days: float, kind: str, kept: str) -> None:
    """Each kind of record is deleted at its time; the events of a batch that is not normal go with its deliveries."""
    assert keeping(a_batch(days * DAY, kind=kind), NOW, MONTH, []).kept == kept


def a_replay(**changes: object) -> Replay:
    """Return a replay of the events from 20 to 10 days ago."""
    fields = {"replay_id": "r", "run": "run", "bus": "orders", "selection": {}, "parts": (), "started_at": NOW}
    times = {"since": NOW - 20 * DAY, "until": NOW - 10 * DAY, "next_at": NOW}
    return Replay(**{**fields, **times, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("days", "changes", "of_replay", "needed"),
    [
        (15, {}, {}, {"archive"}),
        (20, {}, {}, {"archive"}),
        (10, {}, {}, set()),
        (15, {"bus": "bills"}, {}, set()),
        (15, {"kind": "retry", "bus": ""}, {}, set()),
        (15, {}, {"skip_delivered": True}, {"archive", "all"}),
        (15, {}, {"selection": {"sql": "code = 503"}}, {"archive", "all"}),
        (5, {"kind": "retry", "bus": ""}, {"skip_delivered": True}, {"all"}),
        (21, {"kind": "retry", "bus": ""}, {"skip_delivered": True}, set()),
    ],
)
def test_a_replay_needs_what_it_reads(
    days: float, changes: dict[str, object], of_replay: dict[str, object], needed: set[str]
) -> None:
    """A replay needs the archive of its time and bus and, if it selects by outcome, the later outcomes in any batch."""
    found = needs_of_requests(a_batch(days * DAY, **changes), [a_replay(**of_replay)], [])

    assert {need.what for need in found} == needed


def test_a_redrive_needs_dead_letters() -> None:
    """A redrive needs the dead letters of every batch, because its selection is not known yet."""
    assert list(needs_of_requests(a_batch(DAY), [], ["d"])) == [Need("dead_letters", "redrive d is running")]
