"""The breaker as seen by one push's run of one target: what it may send next, and what it reports to the ledger."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.breaker import (
    GOOD_PROBES,
    LEAST_ATTEMPTS,
    Count,
    Ended,
    Tally,
    first_second,
    is_slow,
    total,
    trips,
)

#: Maximum failed deliveries that one run retries at a time while the target's window is good. Without it, a target that
#: rejects everything once was limited to a few at a time: the demo took 64 s to deliver everything, now 47 s.
_OPEN_AT_ONCE = 200


class RunBreaker:
    """Counts the attempts of one run; opens by itself, before the ledger knows of any failure.

    A delivery that this push retries is counted when that is done, with all its attempts: a target that accepts
    everything at the second attempt is not down. While such retries are open and the target looks bad, nothing new is
    sent. If the attempts counted so far are good, enough may be open that the target is not limited to a few at a time.

    `opens` False: the breaker never opens, and only the time for which the target has been failing is counted.
    `probing`: deliveries go one at a time, until enough succeed or one fails. `judges_speed`: other targets wait for
    this run, so a request without a response, or many slow responses, end it.

    Written by the run's thread; one other thread at a time may call `take`.
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
        self._judges_speed = judges_speed
        self.too_slow = False
        self._good = probed.good if probed is not None else 0
        self.probing = probed is not None
        self.tripped = False
        # By second since 1970: attempts, and how many failed. Plain numbers: this is counted for every response.
        self._attempts: dict[int, int] = {}
        self._failed: dict[int, int] = {}
        self._slow: dict[int, int] = {}
        self._no_response = self._reported_no_response = 0
        self._counts_from = 0
        self._asked: dict[bytes, list[int]] = defaultdict(list)  # seconds of failed attempts whose delivery is retried
        self._probes: list[bool] = []
        self._reported: dict[int, Count] = {}
        self._reported_probes = 0
        self._paused_until: datetime | None = None
        self._reported_pause: datetime | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether `capacity` is unlimited at any time."""
        return not (self._asked or self.probing or self.tripped)

    def capacity(self, now: datetime) -> int | None:
        """Return how many deliveries that this push has not tried may be sent now; None: unlimited."""
        if self.tripped:
            return 0
        if self.probing:
            return 0 if self._asked else 1
        if not self._asked:
            return None
        seen = self._within(now)
        if seen.attempts >= LEAST_ATTEMPTS and not trips(seen):
            return max(0, _OPEN_AT_ONCE - len(self._asked))
        asked = sum(map(len, self._asked.values()))
        return 0 if trips(seen.plus(Count(asked, asked))) else None

    def record_response(self, delivery_id: bytes, at: datetime, *, failed: bool, again: bool = False) -> None:
        """Record one response; `again`: it failed, and this push will retry the delivery."""
        second = int(at.timestamp())
        if again:
            self._asked[delivery_id].append(second)
            return
        if self._asked:
            self._judge(delivery_id)
        self._attempts[second] = self._attempts.get(second, 0) + 1
        if failed:
            self._failed[second] = self._failed.get(second, 0) + 1
        if self.probing:
            self._probed(second, good=not failed)
        elif failed and trips(self._within(at)):
            self.tripped = True

    def record_accepted(self, count: int, at: datetime) -> None:
        """Record that `count` deliveries were accepted at the first attempt of this push, which does not probe."""
        second = int(at.timestamp())
        self._attempts[second] = self._attempts.get(second, 0) + count

    def record_slow(self, at: datetime, *, no_response: bool) -> None:
        """Record that a response was slow or missing; the attempt itself is recorded separately."""
        if not self._judges_speed:
            return
        second = int(at.timestamp())
        self._slow[second] = self._slow.get(second, 0) + 1
        self._no_response += no_response
        self.too_slow = self.too_slow or no_response or is_slow(self._within(at))

    def record_pause(self, until: datetime) -> None:
        """Record that the target asked for a pause, which the ledger passes on to the other pushes."""
        self._paused_until = until

    def end_run(self, now: datetime) -> None:
        """Count deliveries that were to be retried and will not be: the run is over."""
        for delivery_id in list(self._asked):
            self.record_abandoned(delivery_id, now)

    def record_abandoned(self, delivery_id: bytes, now: datetime) -> None:
        """Count a delivery that was to be retried and will not be."""
        if delivery_id in self._asked:
            self._judge(delivery_id)
            if self.probing:
                self._probed(int(now.timestamp()), good=False)

    def take(self, ended: Ended | None = None) -> Tally | None:
        """Return what has not been reported to the ledger, None if there is nothing."""
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

    def _judge(self, delivery_id: bytes) -> None:
        for second in self._asked.pop(delivery_id, ()):
            self._attempts[second] = self._attempts.get(second, 0) + 1
            self._failed[second] = self._failed.get(second, 0) + 1

    def _probed(self, second: int, *, good: bool) -> None:
        self._probes.append(good)
        self._good += good
        if not good:
            self.tripped = True
        elif self._good >= GOOD_PROBES:
            self.probing = False
            self._counts_from = second + 1  # attempts from before it recovered do not open it again

    def _within(self, now: datetime) -> Count:
        first = max(first_second(now), self._counts_from)
        return total(
            Count(self._attempts.get(second, 0), self._failed.get(second, 0), self._slow.get(second, 0))
            for second in self._attempts.keys() | self._slow.keys()
            if second >= first
        )
