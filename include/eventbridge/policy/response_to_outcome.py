"""Decides the outcome of a delivery from its attempt, the response, the policy and the time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from eventbridge.model.outcome import (
    DELIVERED,
    INTERRUPTED,
    NOT_BEFORE,
    REJECTED,
    TARGET_BUSY,
    TARGET_PAUSED,
    DeadLettered,
    Outcome,
    Response,
    RetryAt,
)
from eventbridge.policy.delivery_windows import first_opening
from eventbridge.rules.model import DeliverBetween, RetryPolicy, StatusRules

#: The longest wait that a target can ask for with `Retry-After`, unless a setting says otherwise.
RETRY_AFTER_MAX = timedelta(days=1)
#: The longest pause of a target that responds with 429 without saying for how long.
PENALTY_MAX = timedelta(seconds=10)
_RETRYABLE_CODES = frozenset({401, 407, 408, 409, 425, 429})
#: The error classes that are permanent although there was no response.
_PERMANENT_CLASSES = frozenset({"InvalidHeader", "MessageRefused", "MessageTooLarge", REJECTED})
_DELAY_SECONDS = re.compile(r"[0-9]{1,300}")

#: A response is slow if it took at least this share of the target's timeout, and at least this many seconds.
SLOW_SHARE_OF_TIMEOUT = 0.2
LEAST_SLOW_SECONDS = 1.0
#: A response is expected within this multiple of the longest response time so far, or within this many seconds if that
#: is longer.
_LONGER = 1.25
_LEAST_SPARE_SECONDS = 0.25


#: A delivery whose target asks for a longer wait gets its last try this long before its maximum age. The margin is
#: needed because a retry is sent a few seconds after it falls due.
LAST_CHANCE = timedelta(minutes=1)


_NO_RULES = StatusRules()


class RetryTerms(NamedTuple):
    """The terms of a target's retries: its policy, its timeout in seconds, and its delivery window.

    `retry_after_max` is the longest wait that the target can ask for. `statuses` are those that are always retried or
    dead-lettered.
    """

    policy: RetryPolicy
    timeout_seconds: float
    window: DeliverBetween | None = None
    retry_after_max: timedelta = RETRY_AFTER_MAX
    statuses: StatusRules = _NO_RULES


def decide(
    response: Response,
    terms: RetryTerms,
    *,
    attempts: int,
    arrived_at: datetime,
    on_hold_seconds: float,
    now: datetime,
    draw: float,
) -> Outcome:
    """Return the outcome of a delivery after the response to attempt number `attempts`, counted from 1.

    `arrived_at` is the time from which the event's age is measured. `on_hold_seconds` is the time on hold, which does
    not count towards the age. `draw` is a random number in [0, 1) for the jitter. An `Interrupted` response is not a
    failure of the target, because this process stopped waiting for it. The target may have received the delivery, so it
    is sent again only once the target's timeout is over. A `Retry-After` defers the retry by at most `retry_after_max`,
    and at most until LAST_CHANCE before the event reaches the policy's maximum age, so a target that asks for a longer
    wait is tried once more. A retry that would fall due while the target's window is closed falls due when it opens; if
    that is beyond the maximum age, the delivery is dead-lettered now.
    """
    if response.accepted:
        return DELIVERED
    policy, timeout_seconds, window, retry_after_max, statuses = terms
    if response.error_class == INTERRUPTED:
        over_at = response.started_at + timedelta(seconds=timeout_seconds)
        return RetryAt(first_opening(window, max(now, over_at)), INTERRUPTED)
    if response.code == 410 and statuses.retries(410) is None:
        return DeadLettered("target_gone", _describe(response), disable_target=True)
    if response.abort or not _is_retryable(response, statuses):
        return DeadLettered("non_retryable", _describe(response))
    if attempts > policy.max_retries:
        return DeadLettered(
            "maximum_retry_attempts", f"{_describe(response)}, attempt {attempts} of {policy.max_retries + 1}"
        )
    due_at = now + timedelta(seconds=delay_seconds(policy, attempts, draw))
    asked = retry_after(response.retry_after, now, retry_after_max)
    if asked is not None:
        ends_at = arrived_at + timedelta(seconds=on_hold_seconds + policy.maximum_event_age_seconds)
        due_at = max(due_at, min(asked, ends_at - LAST_CHANCE))
    due_at = first_opening(window, due_at)
    too_old = expired(policy, arrived_at, on_hold_seconds, due_at)
    if too_old is not None:
        maximum = f"{policy.maximum_event_age_seconds:.0f} s"
        detail = f"{_describe(response)}; at the next attempt, the event would exceed its maximum age of {maximum}"
        return DeadLettered(too_old.reason, detail)
    return RetryAt(due_at, _name(response))


def is_failure(response: Response, statuses: StatusRules = _NO_RULES) -> bool:
    """Return whether a response is a failure of the target, which its breaker counts, and not only of this delivery.

    A status in `dead_letter_on` of `statuses` concerns only its delivery; one in `retry_on` is a failure of the target.
    """
    if response.accepted or response.abort or response.error_class == INTERRUPTED:
        return False
    return _is_retryable(response, statuses)


def age_begins(arrived_at: datetime, not_before: datetime | None) -> datetime:
    """Return the time from which a delivery's age is measured: its arrival, or `not_before` if that is later."""
    return arrived_at if not_before is None else max(arrived_at, not_before)


def too_early(not_before: datetime | None, window: DeliverBetween | None, now: datetime) -> RetryAt | None:
    """Return a RetryAt for a delivery that may not be sent yet at `now`, or None if it may. A RetryAt is not an
    attempt."""
    at = first_opening(window, now, not_before)
    return None if at <= now else RetryAt(at, NOT_BEFORE)


def expired(policy: RetryPolicy, arrived_at: datetime, on_hold_seconds: float, now: datetime) -> DeadLettered | None:
    """Return a DeadLettered outcome if a delivery is too old at `now`, not counting time on hold; None if it is not."""
    age_seconds = (now - arrived_at).total_seconds() - on_hold_seconds
    if age_seconds < policy.maximum_event_age_seconds:
        return None
    maximum = policy.maximum_event_age_seconds
    return DeadLettered("maximum_event_age", f"the event is {age_seconds:.0f} s old; the maximum is {maximum:.0f} s")


def while_paused(
    policy: RetryPolicy, arrived_at: datetime, on_hold_seconds: float, until: datetime, now: datetime
) -> Outcome:
    """Return the outcome of an untried delivery whose target is paused: a deferral or, if it is too old, a dead letter.

    It is deferred until the pause ends or, if that is earlier, until the event reaches the policy's maximum age. A
    target may ask for a pause of days, but no delivery is pending for longer than that age.
    """
    end = expired(policy, arrived_at, on_hold_seconds, now)
    if end is not None:
        return end
    over_at = arrived_at + timedelta(seconds=on_hold_seconds + policy.maximum_event_age_seconds)
    return RetryAt(min(until, over_at), TARGET_PAUSED)


def delay_seconds(policy: RetryPolicy, attempts_made: int, draw: float) -> float:
    """Return how many seconds to wait after `attempts_made` failed attempts; `draw` is random in [0, 1).

    BACKOFF_RETRY: 10 s to 20 s. EXPONENTIAL_DECAY_RETRY: 1, 2, 4 ... 512 s, then 512 s. Jitter is applied last, so that
    deliveries at the maximum stay spread.
    """
    try:
        grown = policy.initial_delay_seconds * policy.multiplier ** (attempts_made - 1)
    except OverflowError:
        grown = policy.max_delay_seconds
    factor = 1.0 - policy.jitter + 2.0 * policy.jitter * draw
    return min(grown, policy.max_delay_seconds) * factor


def retry_after(header: str | None, now: datetime, longest: timedelta) -> datetime | None:
    """Return the time in a `Retry-After` header (RFC 9110, 10.2.3: seconds or an HTTP date), at most `longest` after
    `now`.

    Returns None if there is no header or it has neither form.
    """
    if header is None:
        return None
    text = header.strip()
    if _DELAY_SECONDS.fullmatch(text):
        return now + timedelta(seconds=min(int(text), longest.total_seconds()))
    try:
        asked = parsedate_to_datetime(text)
        asked = asked.replace(tzinfo=UTC) if asked.tzinfo is None else asked.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return min(asked, now + longest)


def pause_asked(response: Response, terms: RetryTerms, *, attempts: int, now: datetime, draw: float) -> datetime | None:
    """Return the end of the pause that a response asked for; None if it asked for none or the pause is over.

    A response with 429 or TARGET_BUSY asks for one. The pause is its `Retry-After`, at most `retry_after_max`; without
    `Retry-After`, it is the policy's wait after attempt number `attempts`, at most `PENALTY_MAX`. A 503 with
    `Retry-After` concerns only its own delivery, because its target may accept the next one.
    """
    if response.code != 429 and response.error_class != TARGET_BUSY:
        return None
    until = retry_after(response.retry_after, now, terms.retry_after_max)
    if until is None:
        until = now + min(timedelta(seconds=delay_seconds(terms.policy, attempts, draw)), PENALTY_MAX)
    return until if until > now else None


def _is_retryable(response: Response, statuses: StatusRules) -> bool:
    if response.code is None:
        return response.error_class not in _PERMANENT_CLASSES
    if (retried := statuses.retries(response.code)) is not None:
        return retried
    # RFC 9110, 15: a code outside 100..599 is treated as 5xx, and so are a final 1xx and a 2xx that was not accepted
    return response.code in _RETRYABLE_CODES or not 300 <= response.code < 500


def _name(response: Response) -> str:
    return str(response.error_class) if response.code is None else f"HTTP {response.code}"


def _describe(response: Response) -> str:
    what = f"{_name(response)}, webhook-delivery: abort-message" if response.abort else _name(response)
    return f"{what}: {response.error}" if response.error else what


def slow_after(timeout_seconds: float, budget_seconds: float) -> float:
    """Return the number of seconds after which a response counts as slow, and a missing response as timed out.

    This is a fifth of the shorter of the timeout and the push's budget, but at least one second. A push waits no longer
    than either.
    """
    return max(LEAST_SLOW_SECONDS, SLOW_SHARE_OF_TIMEOUT * min(timeout_seconds, budget_seconds))


def last_start(until: datetime, budget: timedelta, longest_seconds: float) -> datetime:
    """Return when a push that listens until `until` starts its last request.

    A request without a response at `until` is recorded as interrupted and sent again after its timeout, so a push sends
    nothing whose response is expected later. The expected response time is 1.25 times `longest_seconds`, the longest
    one of this push. At least half of the budget always remains for sending.
    """
    spare = timedelta(seconds=max(_LEAST_SPARE_SECONDS, _LONGER * longest_seconds))
    return until - min(spare, budget / 2)
