"""The breaker of a target: attempts within a time + how it stood + now -> how it stands. Pure; no clock of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from eventbridge.decision.head_of_line import Stay
from eventbridge.model.target_state import TargetStatus

Admission = Literal["all", "apart", "probes", "none"]

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
#: For so long, 5 % of the window, batches may wait for one target alone before it is delivered apart from the others.
HOLD_UP_SECONDS = 1.5
#: So many of its chunks in a row must be quick, and OPEN must have passed, before it is with the others again.
QUICK_CHUNKS = 5


class Count(NamedTuple):
    """Attempts, how many of them failed, and for how many milliseconds batches waited for their target alone."""

    attempts: int = 0
    failed: int = 0
    hold_up_ms: int = 0

    def plus(self, other: Count) -> Count:
        """Return the sum of both."""
        return Count(self.attempts + other.attempts, self.failed + other.failed, self.hold_up_ms + other.hold_up_ms)


@dataclass(frozen=True)
class Ended:
    """How a push of a target ended: `settled` of the `allowed` deliveries that nobody but the target held up.

    `spent`: the budget was over before the work was. `stay`: how long it took, None where nobody would have waited.
    `apart`: it was in the slow lane, where nobody did. `contacted` False: nothing was sent to it, so that nothing was
    found out of it. `left_behind`: so many requests had no answer yet when the others of the batch had been done for a
    while.
    """

    settled: int
    allowed: int
    delivered: int
    spent: bool
    stay: Stay | None = None
    apart: bool = False
    contacted: bool = True
    left_behind: int = 0

    @property
    def half(self) -> bool:
        """Whether at least half was settled."""
        return 2 * self.settled >= self.allowed

    @property
    def hold_up_ms(self) -> int:
        """For how long its batch waited for it alone."""
        return 0 if self.stay is None or self.apart else round(self.stay.hold_up * 1000)


@dataclass(frozen=True)
class Tally:
    """What a push tells of one target: attempts by second since 1970, probes in their order, and how it ended.

    `disable_after_seconds`: a target that failed for so long is disabled; None: never. `opens` False: it does nothing
    else to the breaker (of an ordered target, whose deliveries wait by key). `paused_until`: it asked for a pause.
    """

    rule: str
    target: str
    counts: Mapping[int, Count] = field(default_factory=dict)
    probes: tuple[bool, ...] = ()
    ended: Ended | None = None
    disable_after_seconds: float | None = None
    opens: bool = True
    paused_until: datetime | None = None

    @property
    def total(self) -> Count:
        """All its attempts."""
        return total(self.counts.values())

    @property
    def hold_up_ms(self) -> int:
        """For how long its batch waited for this target alone; an ordered one is not judged by that."""
        return self.ended.hold_up_ms if self.ended is not None and self.opens else 0

    @property
    def is_word_against(self) -> bool:
        """Whether there is anything in it that a target which only ever does well never has."""
        spent = self.ended is not None and self.ended.contacted and self.ended.spent and not self.ended.half
        return (
            spent
            or self.left_behind > 0
            or self.total.failed > 0
            or self.hold_up_ms > 0
            or self.paused_until is not None
        )

    @property
    def left_behind(self) -> int:
        """How many requests its batch did not wait for; an ordered target is not judged by that."""
        return self.ended.left_behind if self.ended is not None and self.opens else 0


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
    """Return what of a target's deliveries may be sent now; `status` None: it was never anything but ok.

    `apart`: all, but not beside those of other targets: in the slow lane.
    """
    if status is None or status.state == "ok":
        return "all"
    if status.state == "disabled" or (status.until is not None and now < status.until):
        return "none"
    return "apart" if status.slow else "probes"


def after(status: TargetStatus, tally: Tally, window: Count, now: datetime) -> TargetStatus:
    """Return how a target stands after what a push tells of it; `window` holds all pushes' attempts of the last 30 s.

    A disabled target stays so until a person acts.
    """
    if status.state == "disabled":
        return status
    was_ok = status.state == "ok"
    status = _paused(_failing(status, tally.total, now), tally.paused_until)
    if _failed_for(status, tally.disable_after_seconds, now):
        days = (now - (status.failing_since or now)) / timedelta(days=1)
        return disabled(status, f"every attempt failed for {days:.1f} days", now)
    if not tally.opens:
        return status
    for good in tally.probes:
        status = _probed(status, now) if good else _reopened(status, now)
    within = f"within {WINDOW.seconds} s"
    if (was_ok or status.slow) and trips(window):  # not one that has just recovered: the window is of before
        reason = f"{window.failed} of {window.attempts} attempts failed {within}"
        status = _degraded(status, reason, now, now + OPEN)
    elif was_ok and tally.left_behind:
        reason = f"no answer to {tally.left_behind} requests while the others of its batch were done"
        status = _degraded(status, reason, now, now, slow=True)
    elif was_ok and window.hold_up_ms >= 1000 * HOLD_UP_SECONDS:
        reason = f"batches waited {window.hold_up_ms / 1000:.1f} s for it alone {within}{_answers_take(tally.ended)}"
        status = _degraded(status, reason, now, now, slow=True)
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


def pause_of(status: TargetStatus | None, now: datetime) -> datetime | None:
    """Return until when a target is paused; None: it is not."""
    until = status.paused_until if status is not None else None
    return until if until is not None and until > now else None


def _paused(status: TargetStatus, until: datetime | None) -> TargetStatus:
    if until is None or (status.paused_until is not None and until <= status.paused_until):
        return status
    return replace(status, paused_until=until)


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
    if good >= GOOD_PROBES:
        return recovered(status, f"{good} probes were good", now)
    return replace(status, state="half-open", good=good)


def _reopened(status: TargetStatus, now: datetime) -> TargetStatus:
    return status if status.state == "ok" else _degraded(status, "a probe failed", now, now + OPEN)


def _degraded(status: TargetStatus, reason: str, now: datetime, until: datetime, *, slow: bool = False) -> TargetStatus:
    since = now if status.state == "ok" else status.since
    return replace(status, state="degraded", reason=reason, since=since, until=until, good=0, slow=slow)


def _ended(status: TargetStatus, ended: Ended, now: datetime) -> TargetStatus:
    if not ended.contacted:
        return replace(status, until=now) if status.state == "half-open" else status  # the next may probe
    reason = f"settled {ended.settled} of {ended.allowed} deliveries within the push budget"
    if ended.spent and not ended.half:
        # one that delivers, if slowly, need not be left alone: its next chunk may go at once
        slow = ended.delivered > 0
        return _degraded(status, reason, now, now if slow else now + OPEN, slow=slow)
    if status.slow and status.state != "ok":
        return _apart(status, ended, now) if ended.apart else status
    if status.state == "half-open":
        return replace(status, until=now)  # there was nothing left to probe with: the next may
    return status


def _apart(status: TargetStatus, ended: Ended, now: datetime) -> TargetStatus:
    """Return how a slow target stands after a chunk of it in the slow lane."""
    quick = ended.stay is None or ended.stay.is_quick
    if not (quick and ended.settled and ended.half):
        return replace(status, good=0)
    good = status.good + 1
    if good < QUICK_CHUNKS or now - status.since < OPEN:
        return replace(status, good=good)
    # no ramp: it was sent to all the time, as fast as it would
    return replace(recovered(status, f"{good} chunks in a row were quick", now), until=None)


def _answers_take(ended: Ended | None) -> str:
    typical = ended.stay.typical if ended is not None and ended.stay is not None else None
    return "" if typical is None else f"; its answers took {typical:.2g} s at the median"
