"""`retry_on` and `dead_letter_on` decide what a response comes to, in batch and in streaming mode."""

from __future__ import annotations

from collections import Counter

from pipeline.delivering import Sending, http
from stored import dead_letters

from eventbridge.repair.audit import audit

AT_ONCE = "{policy: custom, max_retries: 2, initial_delay: 0s, max_delay: 0s}"


def test_a_listed_status_is_retried_and_another_ends_at_once(sending: Sending) -> None:
    """404 is retried until its attempts are used up; 503 makes a dead letter at the first attempt."""
    runtime = sending.begin(
        2,
        missing=http("/status/404", retry=AT_ONCE, retry_on="[404]"),
        broken=http("/status/503", retry=AT_ONCE, dead_letter_on="[5xx]"),
    )

    sending.deliver()

    assert Counter(each["path"] for each in sending.requests()) == {"/status/404": 6, "/status/503": 2}
    records = list(dead_letters(runtime, whole=True))
    assert sorted((each["target"], each["reason"], len(each["attempts"])) for each in records) == [
        *[("broken", "non_retryable", 1)] * 2,
        *[("missing", "maximum_retry_attempts", 3)] * 2,
    ]
    assert audit(runtime).differences == ()


def test_items_of_a_batch_request_follow_their_own_statuses(sending: Sending) -> None:
    """An item with 422 is retried, although the request had 200."""
    path = "/each/422/3/1/chosen"
    runtime = sending.begin(9, crm=http(path, retry=AT_ONCE, batch="{count: 9}", retry_on="[422]"))

    sending.deliver()

    assert list(dead_letters(runtime)) == []
    assert [len(each["webhook_ids"]) for each in sending.requests()] == [9, 3]


def test_410_that_is_listed_disables_no_target(sending: Sending) -> None:
    """With `dead_letter_on` it ends its own delivery, with `retry_on` not even that."""
    runtime = sending.begin(
        1, ends=http("/status/410", dead_letter_on="[410]"), waits=http("/status/410", retry_on="['410']")
    )

    sending.deliver()

    assert [each["target"] for each in dead_letters(runtime)] == ["ends"]
    assert {each.state for each in runtime.ledger.targets.statuses().values()} <= {"ok"}
    assert [(row.target, row.state) for row in runtime.ledger.pending.find()] == [("waits", "scheduled")]
