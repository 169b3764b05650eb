"""Decides a target's new status from the attempts within a window, its old status and the time (its breaker)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from eventbridge.model.rule_state import ShownState, TargetStatus

Admission = Literal["all", "apart", "probes", "none"]

#: The window over which attempts are counted.
WINDOW = timedelta(seconds=30)
#: The breaker opens if there were at least this many attempts within the window and this share of them failed.
LEAST_ATTEMPTS = 10
FAILED_SHARE = 0.7
#: The time that the breaker stays open before the next probe.
OPEN = timedelta(seconds=30)
#: The breaker closes after this many good probes.
GOOD_PROBES = 5
#: The time during which the target's sending rate rises gradually after the breaker closes.
RAMP = timedelta(seconds=30)
#: A target is slow if there were at least LEAST_ATTEMPTS attempts within the window and this share of them was slow.
SLOW_SHARE = 0.5
#: A target leaves the slow lane after this many consecutive quick chunks, but not before OPEN has passed.
QUICK_CHUNKS = 5


class Count(NamedTuple):
    """The number of attempts, of failed attempts, and of attempts with a slow response or none."""

    attempts: int = 0
    failed: int = 0
    slow: int = 0

    def plus(self, other: Count) -> Count:
        """Return the sum of both."""
        return Count(self.attempts + other.attempts, self.failed + other.failed, self.slow + other.slow)


@dataclass(frozen=True)
class Ended:
    """The result of a push to a target: it settled `settled` of `allowed` deliveries.

    `allowed` counts the deliveries that nothing but the target could delay. The push is `spent` if the target's
    responses took at least half of its budget, and the budget ended before the work did.
    It is `apart` if the push was in the slow lane. If `contacted` is False, no request was sent, so the push allows no
    conclusion about the target. It is `quick` if every request had a response, and less than half of the responses were
    slow.
    """

    settled: int
    allowed: int
    delivered: int
    spent: bool
    apart: bool = False
    contacted: bool = True
    quick: bool = True

    @property
    def half(self) -> bool:
        """Return whether at least half of the allowed deliveries were settled."""
        return 2 * self.settled >= self.allowed


@dataclass(frozen=True)
class Tally:
    """A push's report on one target: attempts by second since 1970, the results of probes in order, and how it ended.

    A target that has failed for `disable_after_seconds` is disabled; None means never. If `opens` is False, failures do
    not open its breaker; an ordered target has none, because its deliveries wait by key. `paused_until` is the end of
    the pause that the target asked for. `no_response` is the number of requests with new deliveries that had no
    response at all.
    """

    rule: str
    target: str
    counts: Mapping[int, Count] = field(default_factory=dict)
    probes: tuple[bool, ...] = ()
    ended: Ended | None = None
    disable_after_seconds: float | None = None
    opens: bool = True
    paused_until: datetime | None = None
    no_response: int = 0

    @property
    def total(self) -> Count:
        """Return the sum of the target's attempts."""
        return total(self.counts.values())

    @property
    def is_word_against(self) -> bool:
        """Return whether anything in this report speaks against the target, so that it needs a status."""
        spent = self.ended is not None and self.ended.contacted and self.ended.spent and not self.ended.half
        bad = self.total.failed > 0 or self.total.slow > 0 or self.no_response > 0
        return spent or bad or self.paused_until is not None


def total(counts: Iterable[Count]) -> Count:
    """Return the sum of counts."""
    result = Count()
    for count in counts:
        result = result.plus(count)
    return result


def first_second(now: datetime) -> int:
    """Return the first second (since 1970) of the window that ends at `now`."""
    return int((now - WINDOW).timestamp()) + 1


def trips(window: Count) -> bool:
    """Return whether enough attempts within the window failed to open the breaker."""
    return window.attempts >= LEAST_ATTEMPTS and window.failed >= FAILED_SHARE * window.attempts


def is_slow(window: Count) -> bool:
    """Return whether enough attempts within the window were slow to move the target to the slow lane."""
    return window.attempts >= LEAST_ATTEMPTS and window.slow >= SLOW_SHARE * window.attempts


def admits(status: TargetStatus | None, now: datetime) -> Admission:
    """Return which of a target's deliveries may be sent now; `status` is None if the target was always ok.

    `apart` means all deliveries, but in the slow lane, in chunks without other targets.
    """
    if status is None or status.state == "ok":
        return "all"
    if status.state == "disabled" or (status.until is not None and now < status.until):
        return "none"
    return "apart" if status.slow else "probes"


def next_status(status: TargetStatus, tally: Tally, window: Count, now: datetime) -> TargetStatus:
    """Return the status of a target after a push's report; `window` holds the attempts of all pushes within WINDOW.

    A disabled target stays disabled until an operator enables it.
    """
    if status.state == "disabled":
        return status
    was_ok = status.state == "ok"
    status = _pause(_track_failing(status, tally.total, now), tally.paused_until)
    if _has_failed_for(status, tally.disable_after_seconds, now):
        days = (now - (status.failing_since or now)) / timedelta(days=1)
        return disabled(status, f"every attempt failed for {days:.1f} days", now)
    for good in tally.probes:
        status = _apply_good_probe(status, now) if good else _apply_failed_probe(status, now)
    # a target that has just recovered is exempt, because the attempts in the window precede its recovery
    if tally.opens and (was_ok or status.slow) and trips(window):
        reason = f"{window.failed} of {window.attempts} attempts failed within {WINDOW.seconds} s"
        status = _degrade(status, reason, now, now + OPEN)
    elif was_ok and (slow := _why_slow(tally.no_response, window)) is not None:
        status = _degrade(status, slow, now, now, slow=True)
    if tally.ended is None:
        return status
    return _apply_end(status, tally.ended, now) if tally.opens else _apply_ordered_end(status, tally.ended, now)


def _why_slow(no_response: int, window: Count) -> str | None:
    if no_response:
        return f"{no_response} {'request' if no_response == 1 else 'requests'} had no response in time"
    if is_slow(window):
        share = f"{window.slow} of {window.attempts} responses within {WINDOW.seconds} s"
        return f"{share} took a fifth of the timeout or longer"
    return None


def disabled(status: TargetStatus, reason: str, now: datetime) -> TargetStatus:
    """Return the status of a disabled target, which gets no deliveries until an operator enables it."""
    since = status.since if status.state == "disabled" else now
    return replace(status, state="disabled", reason=reason, since=since, until=None, good=0, slow=False)


def recovered(status: TargetStatus, reason: str, now: datetime) -> TargetStatus:
    """Return the status of a recovered target, whose sending rate rises gradually."""
    return replace(
        status, state="ok", reason=reason, since=now, until=now + RAMP, good=0, slow=False, failing_since=None
    )


def pause_of(status: TargetStatus | None, now: datetime) -> datetime | None:
    """Return when a target's pause ends; None if it is not paused."""
    until = status.paused_until if status is not None else None
    return until if until is not None and until > now else None


def display_state(status: TargetStatus, now: datetime) -> ShownState:
    """Return the state to show for a target: `paused` if it is ok but asked for a pause that is not over."""
    return "paused" if status.state == "ok" and pause_of(status, now) is not None else status.state


def listed_state(status: TargetStatus, now: datetime, *, retries_wait: bool) -> ShownState:
    """Return the state to list for a target: `failing` if it is ok, but each attempt since `failing_since` failed.

    `retries_wait` is whether deliveries to the target wait for a retry. Without any, nothing is left to fail. After a
    pause that the target asked for, it is ok for WINDOW, because its deliveries are only then tried again. The state is
    only listed: a `failing` target gets its deliveries like one that is ok.
    """
    state = display_state(status, now)
    rested = status.paused_until is not None and now - status.paused_until < WINDOW
    is_failing = status.failing_since is not None and retries_wait and not rested
    return "failing" if state == "ok" and is_failing else state


def _pause(status: TargetStatus, until: datetime | None) -> TargetStatus:
    if until is None or (status.paused_until is not None and until <= status.paused_until):
        return status
    return replace(status, paused_until=until)


def _track_failing(status: TargetStatus, count: Count, now: datetime) -> TargetStatus:
    if count.failed < count.attempts:
        return replace(status, failing_since=None)
    if count.failed and status.failing_since is None:
        return replace(status, failing_since=now)
    return status


def _has_failed_for(status: TargetStatus, seconds: float | None, now: datetime) -> bool:
    if seconds is None or status.failing_since is None:
        return False
    return (now - status.failing_since).total_seconds() >= seconds


def _apply_good_probe(status: TargetStatus, now: datetime) -> TargetStatus:
    if status.state == "ok":
        return status
    good = status.good + 1
    if good >= GOOD_PROBES:
        return recovered(status, f"{good} probes were good", now)
    return replace(status, state="half-open", good=good)


def _apply_failed_probe(status: TargetStatus, now: datetime) -> TargetStatus:
    return status if status.state == "ok" else _degrade(status, "a probe failed", now, now + OPEN)


def _degrade(status: TargetStatus, reason: str, now: datetime, until: datetime, *, slow: bool = False) -> TargetStatus:
    since = now if status.state == "ok" else status.since
    return replace(status, state="degraded", reason=reason, since=since, until=until, good=0, slow=slow)


def _apply_end(status: TargetStatus, ended: Ended, now: datetime) -> TargetStatus:
    if not ended.contacted:
        return replace(status, until=now) if status.state == "half-open" else status  # the next push may probe
    reason = f"settled {ended.settled} of {ended.allowed} deliveries within the push budget"
    if ended.spent and not ended.half:
        # a target that delivers, even slowly, needs no pause, so its next chunk may be sent immediately
        slow = ended.delivered > 0
        return _degrade(status, reason, now, now if slow else now + OPEN, slow=slow)
    if status.slow and status.state != "ok":
        return _apply_slow_lane_chunk(status, ended, now) if ended.apart else status
    if status.state == "half-open":
        return replace(status, until=now)  # this push sent no probe, so the next one may
    return status


def _apply_ordered_end(status: TargetStatus, ended: Ended, now: datetime) -> TargetStatus:
    """Return the status of an ordered target after a push.

    It has no breaker, because unsettled deliveries wait by key.
    """
    heals = status.slow and status.state != "ok" and ended.apart and ended.contacted
    return _apply_slow_lane_chunk(status, ended, now) if heals else status


def _apply_slow_lane_chunk(status: TargetStatus, ended: Ended, now: datetime) -> TargetStatus:
    """Return the status of a slow target after one of its chunks in the slow lane."""
    if not (ended.quick and ended.settled and ended.half):
        return replace(status, good=0)
    good = status.good + 1
    if good < QUICK_CHUNKS or now - status.since < OPEN:
        return replace(status, good=good)
    # the rate need not rise gradually, because the target kept receiving deliveries as fast as it accepted them
    return replace(recovered(status, f"{good} chunks in a row were quick", now), until=None)
