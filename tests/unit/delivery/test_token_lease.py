"""The pace of a run: tokens of its target and of its redrive, and the pause that the target asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from eventbridge.delivery.admission import Pace
from eventbridge.policy.rate_limit import Bucket, Lease, lease

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def bucket(clock: Callable[[], datetime]) -> Callable[[float, int], Lease]:
    """Return a lease function with its own bucket, as the ledger has it."""
    kept: list[Bucket | None] = [None]

    def give(rate: float, wanted: int) -> Lease:
        given = lease(kept[0], rate, wanted, clock())
        kept[0] = given.left
        return given

    return give


def test_nothing_passes_before_a_pause_is_over() -> None:
    """The later of two counts, whichever push asked; afterwards it is as unlimited as before."""
    pace = Pace(bucket(lambda: NOW), None)
    assert pace.is_unlimited
    pace.pause.ask(later(5))
    pace.pause.ask(later(2))

    assert not pace.is_unlimited
    assert (pace.may_ask(later(4)), pace.take(later(4), 1), pace.next_at) == (False, False, later(5))
    assert (pace.may_ask(later(5)), pace.take(later(5), 1)) == (True, True)
    assert pace.is_unlimited
    assert pace.next_at is None


def test_both_rates_are_kept() -> None:
    """The lower one at the time decides, and a token is not used up if the other rate refused."""
    now = NOW
    pace = Pace(bucket(lambda: now), 10.0)
    pace.redrive_pace = Pace(bucket(lambda: now), 4.0)

    sent = [now for _ in range(20) if pace.take(now, 20)]
    assert len(sent) == 4
    assert pace.next_at == later(0.25)
    for tenth in range(1, 51):
        now = later(tenth / 10)
        while pace.take(now, 20):
            sent.append(now)

    assert 4 + 19 <= len(sent) <= 4 + 20
    assert not pace.is_unlimited


def test_a_target_is_held_up_by_its_rate_until_a_second_after_it_might_continue() -> None:
    """After that the wait has another reason; an old refusal, for a token that has long been available, means
    nothing.
    """
    now = NOW
    pace = Pace(bucket(lambda: now), 0.2)
    assert not pace.has_limited(now)
    assert [pace.take(now, 9), pace.take(now, 9)] == [True, False]
    assert pace.next_at == later(5)

    assert [pace.has_limited(later(at)) for at in (0, 4, 5.9, 6.1, 60)] == [True, True, True, False, False]
