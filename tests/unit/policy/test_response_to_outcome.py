"""Each response, retry policy and age of a delivery has a defined outcome."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.model.outcome import NOT_BEFORE, TARGET_PAUSED, DeadLettered, Delivered, Outcome, Response, RetryAt
from eventbridge.policy.response_to_outcome import (
    RetryTerms,
    age_begins,
    decide,
    delay_seconds,
    expired,
    is_failure,
    pause_asked,
    retry_after,
    too_early,
    while_paused,
)
from eventbridge.rules.model import DeliverBetween, RetryPolicy, StatusRules

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EXPONENTIAL = RetryPolicy.from_name("EXPONENTIAL_DECAY_RETRY")
BACKOFF = RetryPolicy.from_name("BACKOFF_RETRY")


def response(code: int | None = None, **fields: object) -> Response:
    accepted = code is not None and 200 <= code < 300
    return Response(**{"accepted": accepted, "started_at": NOW, "duration_ms": 5.0, "code": code, **fields})  # type: ignore[arg-type]


def decided(given: Response, policy: RetryPolicy = EXPONENTIAL, **changes: object) -> Outcome:
    terms = {name: changes.pop(name) for name in RetryTerms._fields if name in changes}
    arguments = {"attempts": 1, "arrived_at": NOW, "on_hold_seconds": 0.0, "now": NOW, "draw": 0.5, **changes}
    return decide(given, RetryTerms(policy, **{"timeout_seconds": 10.0, **terms}), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_every_2xx_is_delivered(code: int) -> None:
    """Any 2xx means that the target has it."""
    assert decided(response(code)) == Delivered()


@pytest.mark.parametrize("code", [401, 407, 408, 409, 425, 429, 500, 501, 502, 503, 504, 599, 600, 999, 101])
def test_codes_that_are_tried_again(code: int) -> None:
    """Status codes of temporary errors are retried; a code outside 100 to 599 counts as 5xx."""
    assert decided(response(code)) == RetryAt(NOW + timedelta(seconds=1), f"HTTP {code}")


@pytest.mark.parametrize(
    "code", [300, 301, 302, 304, 307, 308, 400, 402, 403, 404, 405, 406, 411, 413, 422, 426, 451, 499]
)
def test_codes_that_end_it(code: int) -> None:
    """Other 3xx and 4xx codes are not retried."""
    assert decided(response(code)) == DeadLettered("non_retryable", f"HTTP {code}")


@pytest.mark.parametrize(
    "error_class",
    ["Timeout", "ConnectionRefused", "HostUnknown", "TlsError", "NetworkError", "FileError", "FlushFailed"],
)
def test_no_response_is_tried_again(error_class: str) -> None:
    """A missing response is retried; the reason is only the class of the error, so that rows can be grouped by it."""
    assert decided(response(error_class=error_class, error="details")) == RetryAt(
        NOW + timedelta(seconds=1), error_class
    )


def test_410_disables_the_target() -> None:
    """410 ends the delivery and disables the target, with or without the abort header."""
    gone = DeadLettered("target_gone", "HTTP 410", disable_target=True)

    assert decided(response(410)) == gone
    assert isinstance(decided(response(410, abort=True)), DeadLettered)
    assert decided(response(410, abort=True)).disable_target  # type: ignore[union-attr]


@pytest.mark.parametrize("code", [400, 429, 500, 503])
def test_the_abort_header_ends_it(code: int) -> None:
    """A delivery whose response has `webhook-delivery: abort-message` is not retried."""
    outcome = decided(response(code, abort=True))

    assert outcome == DeadLettered("non_retryable", f"HTTP {code}, webhook-delivery: abort-message")


def test_the_abort_header_takes_nothing_back() -> None:
    """A 2xx is delivered even with the abort header."""
    assert decided(response(200, abort=True)) == Delivered()


@pytest.mark.parametrize(("sent_seconds_ago", "due_in_seconds"), [(0, 10), (4, 6), (10, 0), (60, 0)])
def test_an_abandoned_request_waits_for_its_time_out(sent_seconds_ago: int, due_in_seconds: int) -> None:
    """An abandoned request, which may have arrived, is retried after its timeout, however many attempts were made."""
    sent = response(error_class="Interrupted", started_at=NOW - timedelta(seconds=sent_seconds_ago))

    assert decided(sent, attempts=1000) == RetryAt(NOW + timedelta(seconds=due_in_seconds), "Interrupted")


def test_an_unsendable_delivery_ends_at_once() -> None:
    """A delivery with a header that HTTP cannot carry is not retried."""
    outcome = decided(response(error_class="InvalidHeader", error="ce-x holds a line break"))

    assert outcome == DeadLettered("non_retryable", "InvalidHeader: ce-x holds a line break")


def test_attempts_are_exhausted_after_the_first_and_the_policys() -> None:
    """BACKOFF_RETRY makes 1 + 3 attempts, EXPONENTIAL_DECAY_RETRY 1 + 176."""
    assert isinstance(decided(response(503), BACKOFF, attempts=3), RetryAt)
    assert decided(response(503), BACKOFF, attempts=4) == DeadLettered(
        "maximum_retry_attempts", "HTTP 503, attempt 4 of 4"
    )
    assert isinstance(decided(response(503), attempts=176), RetryAt)
    assert isinstance(decided(response(503), attempts=177), DeadLettered)


def test_a_policy_without_retries() -> None:
    """With a policy without retries, the first failure ends the delivery."""
    policy = RetryPolicy(policy="custom", max_retries=0)

    assert decided(response(503), policy) == DeadLettered("maximum_retry_attempts", "HTTP 503, attempt 1 of 1")


def test_a_retry_due_beyond_the_age_ends_now() -> None:
    """A delivery whose next attempt would be at or after the maximum age ends immediately."""
    policy = EXPONENTIAL.model_copy(update={"maximum_event_age_seconds": 100.0})
    young = NOW - timedelta(seconds=98)
    old = NOW - timedelta(seconds=99)

    assert decided(response(503), policy, arrived_at=young) == RetryAt(NOW + timedelta(seconds=1), "HTTP 503")
    ended = decided(response(503), policy, arrived_at=old)
    assert ended == DeadLettered(
        "maximum_event_age", "HTTP 503; at the next attempt, the event would exceed its maximum age of 100 s"
    )


def test_time_held_is_no_age() -> None:
    """Time on hold for an operator, an order or a closed pool does not count as age."""
    policy = EXPONENTIAL.model_copy(update={"maximum_event_age_seconds": 100.0})
    arrived_at = NOW - timedelta(seconds=500)

    assert expired(policy, arrived_at, 401.0, NOW) is None
    assert isinstance(decided(response(503), policy, arrived_at=arrived_at, on_hold_seconds=402.0), RetryAt)
    ended = expired(policy, arrived_at, 400.0, NOW)
    assert ended == DeadLettered("maximum_event_age", "the event is 100 s old; the maximum is 100 s")


def test_exponential_delays_double_to_512_seconds() -> None:
    """The delays are 1, 2, 4 ... 512 s, then 512 s, for any random number: about a day in total."""
    delays = [delay_seconds(EXPONENTIAL, made, 0.9) for made in range(1, 177)]

    assert delays[:11] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512]
    assert set(delays[10:]) == {512}
    assert 0.98 < sum(delays) / 86_400 < 1.01


def test_backoff_delays_lie_between_10_and_20_seconds() -> None:
    """BACKOFF_RETRY waits 10 s for the lowest random number and almost 20 s for the highest, after every attempt."""
    for made in (1, 2, 3):
        assert delay_seconds(BACKOFF, made, 0.0) == pytest.approx(10)
        assert delay_seconds(BACKOFF, made, 0.5) == pytest.approx(15)
        assert delay_seconds(BACKOFF, made, 0.999999) == pytest.approx(20, abs=0.001)


def test_own_delays_grow_to_their_maximum_with_jitter() -> None:
    """A custom policy's delays grow to their maximum, to which jitter also applies; 1,000 attempts do not overflow."""
    policy = RetryPolicy(policy="custom", initial_delay_seconds=2, multiplier=10, max_delay_seconds=60, jitter=0.2)

    assert delay_seconds(policy, 1, 0.5) == pytest.approx(2)
    assert delay_seconds(policy, 2, 0.5) == pytest.approx(20)
    assert delay_seconds(policy, 3, 0.0) == pytest.approx(48)
    assert delay_seconds(policy, 1000, 0.5) == pytest.approx(60)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("30", 30),
        (" 0 ", 0),
        ("3600", 3600),
        ("7200", 7200),
        ("86401", 86400),
        ("9" * 300, 86400),
        ("Sun, 01 Mar 2026 12:05:00 GMT", 300),
        ("Sunday, 01-Mar-26 12:05:00 GMT", 300),
        ("Sun Mar  1 12:05:00 2026", 300),
        ("Sun, 01 Mar 2026 13:05:00 +0100", 300),
        ("Mon, 02 Mar 2026 12:05:00 GMT", 86400),
        ("Sun, 01 Mar 2026 11:00:00 GMT", -3600),
    ],
)
def test_retry_after_is_seconds_or_a_date_capped(header: str, seconds: int) -> None:
    """`Retry-After` may have any form of RFC 9110 and is limited to the longest wait."""
    assert retry_after(header, NOW, timedelta(days=1)) == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "header", [None, "", "soon", "-5", "1.5", "\u0665", "9" * 5000, "Sun, 99 Mar 2026 12:05:00 GMT"]
)
def test_a_retry_after_that_cannot_be_read_is_no_request(header: str | None) -> None:
    """Any other `Retry-After` counts as missing."""
    assert retry_after(header, NOW, timedelta(days=1)) is None


def test_the_later_of_retry_after_and_policy_counts() -> None:
    """`Retry-After` can only delay a retry, not bring it forward."""
    assert decided(response(503, retry_after="30")) == RetryAt(NOW + timedelta(seconds=30), "HTTP 503")
    assert decided(response(503, retry_after="1"), attempts=5) == RetryAt(NOW + timedelta(seconds=16), "HTTP 503")


def test_a_policys_own_delay_may_exceed_the_longest_wait() -> None:
    """The limit applies to what targets ask for, not to the delays of a policy."""
    policy = RetryPolicy(
        policy="custom", max_retries=5, initial_delay_seconds=7200, multiplier=1, max_delay_seconds=7200, jitter=0
    )

    given = response(503, retry_after="99999")
    assert decided(given, policy, retry_after_max=timedelta(hours=1)) == RetryAt(NOW + timedelta(hours=2), "HTTP 503")


@pytest.mark.parametrize("code", [429, 503])
def test_a_target_is_not_asked_before_its_retry_after(code: int) -> None:
    """A retry waits for `Retry-After`, but no longer than the setting or until a minute before the maximum age."""
    assert decided(response(code, retry_after="7200")) == RetryAt(NOW + timedelta(hours=2), f"HTTP {code}")
    cut = decided(response(code, retry_after="7200"), retry_after_max=timedelta(minutes=5))
    assert cut == RetryAt(NOW + timedelta(minutes=5), f"HTTP {code}")
    old = decided(response(code, retry_after="7200"), arrived_at=NOW - timedelta(hours=23))
    assert old == RetryAt(NOW + timedelta(minutes=59), f"HTTP {code}")
    held = decided(response(code, retry_after="7200"), arrived_at=NOW - timedelta(hours=23), on_hold_seconds=600.0)
    assert held == RetryAt(NOW + timedelta(minutes=69), f"HTTP {code}")
    last = decided(response(code, retry_after="7200"), arrived_at=NOW - timedelta(days=1, seconds=-30))
    assert last == RetryAt(NOW + timedelta(seconds=1), f"HTTP {code}"), "by the policy alone"


def test_a_paused_delivery_waits_no_longer_than_its_age() -> None:
    """A paused delivery waits until the pause is over or it is too old; one that is too old ends immediately."""
    until = NOW + timedelta(hours=2)
    policy = EXPONENTIAL.model_copy(update={"maximum_event_age_seconds": 3600.0})

    assert while_paused(EXPONENTIAL, NOW, 0.0, until, NOW) == RetryAt(until, TARGET_PAUSED)
    assert while_paused(policy, NOW, 600.0, until, NOW) == RetryAt(NOW + timedelta(minutes=70), TARGET_PAUSED)
    ended = while_paused(policy, NOW - timedelta(hours=1), 0.0, until, NOW)
    assert ended == DeadLettered("maximum_event_age", "the event is 3600 s old; the maximum is 3600 s")


def test_a_retry_outside_the_window_is_moved_to_its_opening() -> None:
    """A retry outside the window is due when the window opens, and dead-lettered if it is too old by then."""
    window = DeliverBetween(hours="08:00-12:00", time_zone="UTC")
    opens = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)

    assert decided(response(503), window=window) == RetryAt(opens, "HTTP 503")
    too_old = decided(response(503), window=window, arrived_at=opens - timedelta(days=1))
    assert isinstance(too_old, DeadLettered)
    assert too_old.reason == "maximum_event_age"


def test_an_early_delivery_is_deferred() -> None:
    """An early delivery is deferred to its own time or to the window's opening after that; others are sent."""
    window = DeliverBetween(hours="08:00-13:00", time_zone="UTC")
    tomorrow = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)

    assert too_early(None, None, NOW) is None
    assert too_early(NOW, window, NOW) is None
    assert too_early(NOW + timedelta(minutes=1), window, NOW) == RetryAt(NOW + timedelta(minutes=1), NOT_BEFORE)
    assert too_early(NOW + timedelta(hours=1), window, NOW) == RetryAt(tomorrow, NOT_BEFORE)
    assert too_early(None, window, NOW + timedelta(hours=1)) == RetryAt(tomorrow, NOT_BEFORE)


def test_age_begins_when_a_delivery_could_first_be_sent() -> None:
    """Age is measured from the arrival of an event, or from when its delivery could first be sent."""
    later = NOW + timedelta(hours=1)

    assert age_begins(NOW, None) == age_begins(NOW, NOW - timedelta(hours=1)) == NOW
    assert age_begins(NOW, later) == later


@pytest.mark.parametrize(
    ("given", "attempts", "seconds"),
    [
        (response(429, retry_after="30"), 1, 30),
        (response(429, retry_after="7200"), 1, 7200),
        (response(429, retry_after="99999"), 1, 86400),
        (response(429, retry_after="Sun, 01 Mar 2026 12:00:07 GMT"), 1, 7),
        (response(429), 1, 1),
        (response(429, retry_after="soon"), 3, 4),
        (response(429), 9, 10),
        (response(429, abort=True), 1, 1),
    ],
)
def test_429_asks_for_a_pause(given: Response, attempts: int, seconds: int) -> None:
    """429 pauses a target for its `Retry-After`, at most a day, or else for the policy's delay, at most 10 s."""
    asked = pause_asked(given, RetryTerms(EXPONENTIAL, 10.0), attempts=attempts, now=NOW, draw=0.5)

    assert asked == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "given",
    [response(200), response(503, retry_after="30"), response(429, retry_after="0"), response(error_class="Timeout")],
)
def test_nothing_else_asks_for_a_pause(given: Response) -> None:
    """A 503 delays only its own delivery, and a wait of 0 s is no pause."""
    assert pause_asked(given, RetryTerms(EXPONENTIAL, 10.0), attempts=1, now=NOW, draw=0.5) is None


@pytest.mark.parametrize(
    ("given", "fails"),
    [
        (response(503), True),
        (response(error_class="Timeout"), True),
        (response(200), False),
        (response(503, abort=True), False),
        (response(error_class="Interrupted"), False),
    ],
    ids=["503", "no response", "accepted", "abort", "interrupted"],
)
def test_only_failures_of_the_target_count_for_its_breaker(given: Response, fails: bool) -> None:
    """A request that the push stopped waiting for, and one that the target instructed it to abort, do not count."""
    assert is_failure(given) == fails


CHOSEN = StatusRules(retry_on=("302", "404", "410"), dead_letter_on=("429", "500-599"))


@pytest.mark.parametrize("code", [302, 404, 410])
def test_a_status_to_retry_is_retried_and_is_a_failure_of_the_target(code: int) -> None:
    """410, too: it disables nothing then. The breaker counts it."""
    assert decided(response(code), statuses=CHOSEN) == RetryAt(NOW + timedelta(seconds=1), f"HTTP {code}")
    assert is_failure(response(code), CHOSEN)


@pytest.mark.parametrize("code", [429, 500, 503, 599])
def test_a_status_to_dead_letter_ends_it_and_is_no_failure_of_the_target(code: int) -> None:
    """At the first attempt; the others of the target are not judged by it."""
    assert decided(response(code), statuses=CHOSEN) == DeadLettered("non_retryable", f"HTTP {code}")
    assert not is_failure(response(code), CHOSEN)


def test_chosen_statuses_change_nothing_else() -> None:
    """Other statuses, missing responses and the abort header count as ever."""
    assert isinstance(decided(response(408), statuses=CHOSEN), RetryAt)
    assert isinstance(decided(response(400), statuses=CHOSEN), DeadLettered)
    assert isinstance(decided(response(error_class="Timeout"), statuses=CHOSEN), RetryAt)
    assert isinstance(decided(response(404, abort=True), statuses=CHOSEN), DeadLettered)
    assert decided(response(200), statuses=CHOSEN) == Delivered()
