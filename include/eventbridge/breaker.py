"""The breaker of a target: attempts within a time + how it stood + now -> how it stands. Pure; no clock of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

TargetState = Literal["ok", "degraded", "half-open", "disabled"]
Admission = Literal["all", "probes", "none"]

#: Over how long attempts are counted.
WINDOW = timedelta(seconds=30)
#: The breaker opens when so many attempts, and this share of them, failed within the window.
LEAST_ATTEMPTS = 10
FAILED_SHARE = 0.7
#: How long it stays open before the next probe.
OPEN = timedelta(seconds=30)
#: So many probes must be good before it closes.
GOOD_PROBES = 5
#: For how long after that the target's rate is ramped.
RAMP = timedelta(seconds=30)

ENABLED = "enabled by hand"


class Count(NamedTuple):
    """Attempts, and how many of them failed."""

    attempts: int = 0
    failed: int = 0

    def plus(self, other: Count) -> Count:
        """Return the sum of both."""
        return Count(self.attempts + other.attempts, self.failed + other.failed)


@dataclass(frozen=True)
class TargetStatus:
    """How a target stands, and since when.

    `ok`; `degraded`: its breaker is open, or it was too slow: nothing is sent before `until`, then probes are;
    `half-open`: its last probes were good; `disabled`: it said that it is gone, or failed for too long: its deliveries
    are held. `since` is kept while it goes from degraded to half-open and back. `until` of one that is ok is the end
    of its ramp. `good` counts probes. `slow`: it delivers, but not half of a chunk within a push's budget; probes
    alone do not heal it. `failing_since`: the first of its attempts that failed without one that did not since then.
    """

    rule: str
    target: str
    state: TargetState
    reason: str
    since: datetime
    until: datetime | None = None
    good: int = 0
    slow: bool = False
    failing_since: datetime | None = None


@dataclass(frozen=True)
class Ended:
    """How a push of a target ended: `settled` of the `allowed` deliveries that nobody but the target held up.

    `spent`: the budget was over before the work was.
    """

    settled: int
    allowed: int
    delivered: int
    spent: bool

    @property
    def half(self) -> bool:
        """Whether at least half was settled."""
        return 2 * self.settled >= self.allowed


@dataclass(frozen=True)
class Tally:
    """What a push tells of one target: attempts by second since 1970, probes in their order, and how it ended.

    `disable_after_seconds`: a target that failed for so long is disabled; None: never. `opens` False: it does nothing
    else to the breaker (of an ordered target, whose deliveries wait by key).
    """

    rule: str
    target: str
    counts: Mapping[int, Count] = field(default_factory=dict)
    probes: tuple[bool, ...] = ()
    ended: Ended | None = None
    disable_after_seconds: float | None = None
    opens: bool = True

    @property
    def total(self) -> Count:
        """All its attempts."""
        return total(self.counts.values())


def total(counts: Iterable[Count]) -> Count:
    """Return the sum of counts."""
    result = Count()
    for count in counts:
        result = result.plus(count)
    return result


def first_second(now: datetime) -> int:
    """Return the first second since 1970 that is within the window at `now`."""
    return int((now - WINDOW).timestamp()) + 1


def trips(window: Count) -> bool:
    """Return whether so many attempts within the window failed that the breaker opens."""
    return window.attempts >= LEAST_ATTEMPTS and window.failed >= FAILED_SHARE * window.attempts


def admits(status: TargetStatus | None, now: datetime) -> Admission:
    """Return what of a target's deliveries may be sent now; `status` None: it was never anything but ok."""
    if status is None or status.state == "ok":
        return "all"
    if status.state == "disabled" or (status.until is not None and now < status.until):
        return "none"
    return "probes"


def after(status: TargetStatus, tally: Tally, window: Count, now: datetime) -> TargetStatus:
    """Return how a target stands after what a push tells of it; `window` holds all pushes' attempts of the last 30 s.

    A disabled target stays so until a person acts.
    """
    if status.state == "disabled":
        return status
    was_ok = status.state == "ok"
    status = _failing(status, tally.total, now)
    if _failed_for(status, tally.disable_after_seconds, now):
        days = (now - (status.failing_since or now)) / timedelta(days=1)
        return disabled(status, f"every attempt failed for {days:.1f} days", now)
    if not tally.opens:
        return status
    for good in tally.probes:
        status = _probed(status, now) if good else _reopened(status, now)
    if was_ok and trips(window):  # not one that has just recovered: the window is of before
        reason = f"{window.failed} of {window.attempts} attempts failed within {WINDOW.seconds} s"
        status = _degraded(status, reason, now, now + OPEN)
    return status if tally.ended is None else _ended(status, tally.ended, now)


def disabled(status: TargetStatus, reason: str, now: datetime) -> TargetStatus:
    """Return the status of a target that gets nothing until a person acts."""
    since = status.since if status.state == "disabled" else now
    return replace(status, state="disabled", reason=reason, since=since, until=None, good=0, slow=False)


def recovered(status: TargetStatus, reason: str, now: datetime) -> TargetStatus:
    """Return the status of a target that is well again and whose rate is ramped."""
    return replace(
        status, state="ok", reason=reason, since=now, until=now + RAMP, good=0, slow=False, failing_since=None
    )


def _failing(status: TargetStatus, count: Count, now: datetime) -> TargetStatus:
    if count.failed < count.attempts:
        return replace(status, failing_since=None)
    if count.failed and status.failing_since is None:
        return replace(status, failing_since=now)
    return status


def _failed_for(status: TargetStatus, seconds: float | None, now: datetime) -> bool:
    if seconds is None or status.failing_since is None:
        return False
    return (now - status.failing_since).total_seconds() >= seconds


def _probed(status: TargetStatus, now: datetime) -> TargetStatus:
    if status.state == "ok":
        return status
    good = status.good + 1
    if good >= GOOD_PROBES and not status.slow:
        return recovered(status, f"{good} probes were good", now)
    return replace(status, state="half-open", good=good)


def _reopened(status: TargetStatus, now: datetime) -> TargetStatus:
    return status if status.state == "ok" else _degraded(status, "a probe failed", now, now + OPEN)


def _degraded(status: TargetStatus, reason: str, now: datetime, until: datetime, *, slow: bool = False) -> TargetStatus:
    since = now if status.state == "ok" else status.since
    return replace(status, state="degraded", reason=reason, since=since, until=until, good=0, slow=slow)


def _ended(status: TargetStatus, ended: Ended, now: datetime) -> TargetStatus:
    reason = f"settled {ended.settled} of {ended.allowed} deliveries within the push budget"
    if ended.spent and not ended.half:
        # one that delivers, if slowly, need not be left alone: its next chunk may go at once
        slow = ended.delivered > 0
        return _degraded(status, reason, now, now if slow else now + OPEN, slow=slow)
    if status.slow and status.state != "ok" and ended.settled and ended.half:
        return recovered(status, reason, now)
    if status.state == "half-open":
        return replace(status, until=now)  # there was nothing left to probe with: the next may
    return status
