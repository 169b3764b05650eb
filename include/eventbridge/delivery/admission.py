"""Decides what may be sent to a target now, from its status, its rate limit, its pause, and the breaker of the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from eventbridge.delivery.outstanding import Item
from eventbridge.delivery.rows import OutcomeRows, unsent_row
from eventbridge.model.batch import Batch
from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.breaker import (
    GOOD_PROBES,
    LEAST_ATTEMPTS,
    RAMP,
    Admission,
    Count,
    Ended,
    Tally,
    admits,
    first_second,
    is_slow,
    total,
    trips,
)
from eventbridge.policy.rate_limit import Lease, allowed_per_second, second_of
from eventbridge.policy.response_to_outcome import while_paused
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.runtime import Runtime


def admission(runtime: Runtime, batch: Batch, status: TargetStatus | None, until: datetime) -> Admission:
    """Return which deliveries a push may send to a target until its budget ends at `until`.

    Deliveries of a normal batch are never probes; those for a degraded target are left to the slow lane. If several
    pushes could probe a target, only one of them does.
    """
    found = admits(status, runtime.ledger.now())
    if found in ("all", "none") or status is None:
        return found
    if batch.kind == "normal":
        return "none"
    if found == "apart":
        return "all"
    return "probes" if runtime.ledger.targets.claim_probe(status.rule, status.target, until) else "none"


def must_halt(status: TargetStatus, *, follows_others: bool, now: datetime) -> bool:
    """Return whether a running push must stop sending to a target with this status.

    Without `follows_others`, it stops only if the target is disabled, because a push that probes determines the
    target's state itself, and an ordered target has no breaker.
    """
    if not follows_others:
        return status.state == "disabled"
    return admits(status, now) in ("none", "probes")


def must_wind_down(status: TargetStatus, batch: Batch, now: datetime) -> bool:
    """Return whether a running push must stop starting requests, because another push found the target to be slow."""
    return batch.kind == "normal" and admits(status, now) == "apart"


#: The maximum number of failed deliveries of a run that may wait for a retry while the target's recent attempts are
#: good. A low maximum delays the deliveries to a target that rejects every first attempt: the demo took 64 s instead of
#: 47 s.
_OPEN_AT_ONCE = 200


class RunBreaker:
    """Counts the attempts of one run, and opens when they fail, before any failure is in the ledger.

    The attempts of a delivery that this push retries are counted only once its retries are over, because a target that
    accepts everything at the second attempt is not down. No new delivery is sent while the open retries would trip the
    breaker if they failed. If the attempts counted so far are good, up to `_OPEN_AT_ONCE` retries may be open.

    If `opens` is False, failures end the run but do not open the target's breaker in the ledger, which then only
    records how long the target has been failing. While `probing`, deliveries are sent one at a time, until enough
    succeed or one fails. If `judges_speed`, other targets wait for this run, so one request without a response or many
    slow responses make it `too_slow`, which ends it.

    Only the run's thread writes to it; one other thread at a time may call `take`.
    """

    def __init__(
        self,
        rule: str,
        target: str,
        *,
        probed: TargetStatus | None = None,
        disable_after_seconds: float | None = None,
        opens: bool = True,
        judges_speed: bool = False,
    ) -> None:
        self._rule = rule
        self._target = target
        self._disable_after_seconds = disable_after_seconds
        self._opens = opens
        self.judges_speed = judges_speed
        self.too_slow = False
        self._good = probed.good if probed is not None else 0
        self.probing = probed is not None
        self.tripped = False
        # Attempts, failures and slow responses by second since 1970: plain numbers, because every response is counted.
        self._attempts: dict[int, int] = {}
        self._failed: dict[int, int] = {}
        self._slow: dict[int, int] = {}
        self._no_response = self._reported_no_response = 0
        self._counts_from = 0
        self._retrying: dict[bytes, list[int]] = defaultdict(list)  # seconds of failed attempts, by delivery to retry
        self._probes: list[bool] = []
        self._reported: dict[int, Count] = {}
        self._reported_probes = 0
        self._paused_until: datetime | None = None
        self._reported_pause: datetime | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether `capacity` returns None until a failure is recorded."""
        return not (self._retrying or self.probing or self.tripped)

    def capacity(self, now: datetime) -> int | None:
        """Return how many deliveries that this push has not tried may be sent now; None for any number."""
        if self.tripped:
            return 0
        if self.probing:
            return 0 if self._retrying else 1
        if not self._retrying:
            return None
        seen = self._window_count(now)
        if seen.attempts >= LEAST_ATTEMPTS and not trips(seen):
            return max(0, _OPEN_AT_ONCE - len(self._retrying))
        asked = sum(map(len, self._retrying.values()))
        return 0 if trips(seen.plus(Count(asked, asked))) else None

    def record_response(self, delivery_id: bytes, at: datetime, *, failed: bool, again: bool = False) -> None:
        """Record one response; `again` is True if it failed and this push will retry the delivery."""
        second = int(at.timestamp())
        if again:
            self._retrying[delivery_id].append(second)
            return
        if self._retrying:
            self._count_retried(delivery_id)
        self._attempts[second] = self._attempts.get(second, 0) + 1
        if failed:
            self._failed[second] = self._failed.get(second, 0) + 1
        if self.probing:
            self._record_probe(second, good=not failed)
        elif failed and trips(self._window_count(at)):
            self.tripped = True

    def record_accepted(self, count: int, at: datetime) -> None:
        """Record that `count` deliveries were accepted at this push's first attempt. The breaker must not be
        probing."""
        second = int(at.timestamp())
        self._attempts[second] = self._attempts.get(second, 0) + count

    def record_slow(self, at: datetime, *, no_response: bool) -> None:
        """Record that a response was slow or missing; the attempt itself is recorded separately."""
        if not self.judges_speed:
            return
        second = int(at.timestamp())
        self._slow[second] = self._slow.get(second, 0) + 1
        self._no_response += no_response
        self.too_slow = self.too_slow or no_response or is_slow(self._window_count(at))

    def record_pause(self, until: datetime) -> None:
        """Record that the target asked for a pause; the other pushes read it from the ledger."""
        self._paused_until = until

    def end_run(self, now: datetime) -> None:
        """Count the failed attempts of all deliveries that were waiting for a retry, because the run is over."""
        for delivery_id in list(self._retrying):
            self.record_abandoned(delivery_id, now)

    def record_abandoned(self, delivery_id: bytes, now: datetime) -> None:
        """Count the failed attempts of a delivery that will not be retried after all."""
        if delivery_id in self._retrying:
            self._count_retried(delivery_id)
            if self.probing:
                self._record_probe(int(now.timestamp()), good=False)

    def take(self, ended: Ended | None = None) -> Tally | None:
        """Return what has not been reported to the ledger yet, and how the run `ended`; None if there is nothing to
        report."""
        attempts, failed, slow = self._attempts.copy(), self._failed.copy(), self._slow.copy()
        counts = {
            second: Count(number := attempts.get(second, 0), min(number, failed.get(second, 0)), slow.get(second, 0))
            for second in attempts.keys() | slow.keys()
        }
        unreported = {
            second: Count(
                count.attempts - reported.attempts, count.failed - reported.failed, count.slow - reported.slow
            )
            for second, count in counts.items()
            if count != (reported := self._reported.get(second, Count()))
        }
        probes = tuple(self._probes[self._reported_probes :])
        until = self._paused_until
        pause = until if until != self._reported_pause else None
        if not unreported and not probes and ended is None and pause is None:
            return None
        self._reported = counts
        no_response = self._no_response - self._reported_no_response
        self._reported_no_response += no_response
        self._reported_probes += len(probes)
        self._reported_pause = until
        return Tally(
            self._rule,
            self._target,
            unreported,
            probes,
            ended,
            self._disable_after_seconds,
            self._opens,
            pause,
            no_response,
        )

    def _count_retried(self, delivery_id: bytes) -> None:
        for second in self._retrying.pop(delivery_id, ()):
            self._attempts[second] = self._attempts.get(second, 0) + 1
            self._failed[second] = self._failed.get(second, 0) + 1

    def _record_probe(self, second: int, *, good: bool) -> None:
        self._probes.append(good)
        self._good += good
        if not good:
            self.tripped = True
        elif self._good >= GOOD_PROBES:
            self.probing = False
            self._counts_from = second + 1  # attempts from before the recovery do not count

    def _window_count(self, now: datetime) -> Count:
        first = max(first_second(now), self._counts_from)
        return total(
            Count(self._attempts.get(second, 0), self._failed.get(second, 0), self._slow.get(second, 0))
            for second in self._attempts.keys() | self._slow.keys()
            if second >= first
        )


#: The time for which leased tokens are valid. Without a limit, the unused tokens of a slow target would later cause a
#: burst.
_LEASE = timedelta(seconds=1)


class Pause:
    """The end of the pause that a target asked for. All runs of the target in a push share it; it is thread-safe."""

    def __init__(self) -> None:
        self._until: datetime | None = None

    def ask(self, until: datetime) -> None:
        """Make the pause last until `until`, unless it already lasts longer."""
        self._until = max(until, self._until or until)

    def end_at(self, now: datetime) -> datetime | None:
        """Return when the pause ends; None if there is no pause or it is over."""
        until = self._until
        if until is None or now < until:
            return until
        self._until = None  # a pause that another thread sets just now is lost here; the ledger has it within a second
        return None

    @property
    def last(self) -> datetime | None:
        """The time at which the pause ends, or ended if `end_at` has not been called since."""
        return self._until


class Pace:
    """Decides whether one more delivery may be sent now.

    Only the run's thread uses it, except for `pause` and `set_rate`. Until `ramp_until`, the target's rate rises after
    its recovery. Without a rate, a rising rate and a pause, a delivery may always be sent. `lease`, called with
    (deliveries per second, wanted tokens), leases tokens from the ledger. `redrive_pace` is the pace of a redrive or
    replay: if it is set, a delivery also needs a token from it.
    """

    def __init__(
        self, lease: Callable[[float, int], Lease], rate: float | None, ramp_until: datetime | None = None
    ) -> None:
        self._lease = lease
        self._rate = rate
        self._ramp_until = ramp_until
        self._held = 0
        self._held_until: datetime | None = None
        self._token_at: datetime | None = None  # when tokens may be available again; None means now
        self._refused_at: datetime | None = None
        self._short = 0  # how many tokens to lease, because none is left
        self.pause = Pause()
        #: Whether `fetch` leases the tokens instead of `take`, because the caller cannot wait for the ledger.
        self.defers = False
        self.redrive_pace: Pace | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether `take` always returns True without counting anything."""
        unbound = self._rate is None and self._ramp_until is None and self.redrive_pace is None
        return unbound and self.pause.last is None

    @property
    def next_at(self) -> datetime | None:
        """The time at which the next delivery may be sent, perhaps in the past; None if nothing delays it."""
        redrive_pace = self.redrive_pace.next_at if self.redrive_pace is not None else None
        return max(filter(None, (self._token_at, self.pause.last, redrive_pace)), default=None)

    @property
    def is_short(self) -> bool:
        """Whether only a call of `fetch` can show whether a token is available."""
        return any(limit._short for limit in self._limits)

    @property
    def _limits(self) -> list[Pace]:
        return [self] if self.redrive_pace is None else [self, self.redrive_pace]

    def fetch(self, now: datetime) -> None:
        """Lease the tokens that `take` found missing."""
        for limit in self._limits:
            if limit._short:
                limit._fetch(now)

    def set_rate(self, rate: float | None) -> None:
        """Apply a rate that an operator has changed; any thread may call it."""
        if rate != self._rate:
            self._rate, self._token_at = rate, None

    def ramp(self, now: datetime) -> None:
        """Let the rate rise gradually from now on, because the target has just recovered."""
        self._ramp_until = now + RAMP

    def may_ask(self, now: datetime) -> bool:
        """Return whether a token may be available now."""
        if self.pause.end_at(now) is not None or (self.redrive_pace is not None and not self.redrive_pace.may_ask(now)):
            return False
        return (
            self._token_at is None
            or now >= self._token_at
            or allowed_per_second(self._rate, self._ramp_until, now) is None
        )

    def take(self, now: datetime, wanted: int) -> bool:
        """Take one token, leasing up to `wanted` if none is left; return False if none is available now."""
        limits = self._limits
        if self.pause.end_at(now) is not None or not all(
            limit._has_token(now, wanted, self.defers) for limit in limits
        ):
            self._refused_at = self._refused_at if self.is_short else now
            return False
        for limit in limits:
            limit._spend()
        return True

    def has_limited(self, now: datetime) -> bool:
        """Return whether `take` refused a token within the last second, or would still refuse one."""
        return self._refused_at is not None and now - max(self._refused_at, self.next_at or self._refused_at) < _LEASE

    def _has_token(self, now: datetime, wanted: int, defers: bool) -> bool:
        """Return whether this pace has a token or needs none. If it has none left, lease some, unless `defers` is
        True."""
        if allowed_per_second(self._rate, self._ramp_until, now) is None:
            return True
        if self._held_until is not None and now >= self._held_until:
            self._held = 0
        if not self._held:
            if self._token_at is not None and now < self._token_at:
                return False
            self._short = wanted
            if not defers:
                self._fetch(now)
        return self._held > 0

    def _fetch(self, now: datetime) -> None:
        rate = allowed_per_second(self._rate, self._ramp_until, now)
        wanted, self._short = self._short, 0
        if rate is None:
            return
        found = self._lease(rate, min(wanted, second_of(rate)))
        self._held, self._held_until = found.granted, now + _LEASE
        self._token_at = None if found.granted else now + timedelta(seconds=found.wait_seconds)

    def _spend(self) -> None:
        self._held = max(0, self._held - 1)


def defer_paused(
    items: Iterable[Item], until: datetime, now: datetime, policy: RetryPolicy, rows: OutcomeRows
) -> list[Item]:
    """Defer the untried `items` until `until`, or dead-letter those that are too old; return the items already tried.

    For each deferred or dead-lettered item, a row of the OUTCOME schema that is not an attempt is added to `rows`.
    """
    tried: list[Item] = []
    untried: list[Item] = []
    for item in items:
        (untried if item.due_at is None else tried).append(item)
    rows.put_all(
        unsent_row(item, while_paused(policy, item.arrived_at, item.on_hold_seconds, until, now), now)
        for item in untried
    )
    return tried
