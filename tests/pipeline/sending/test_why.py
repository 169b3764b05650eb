"""`why` reports everything that happened to one id, from ledger, store and buses, in chronological order."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pipeline.delivering import REFUSED, Sending, http, routed, rules
from pipeline.streaming_tasks import a_streaming_task, until

from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.dead_letters.redrive_plan import begin_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import NotFoundError, PartlySearched
from eventbridge.model.why import EventResult
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.batch_files import read_dead_letters
from eventbridge.upkeep.maintain import maintain
from eventbridge.views.requests import find_sent_request
from eventbridge.views.trace.explain import why, why_between

NO_RETRY = "{policy: custom, max_retries: 0}"


def one(sending: Sending, event_id: str = "1") -> EventResult:
    """Return the one message with an id."""
    (found,) = why(sending.runtime, event_id).events
    return found


def steps(event: EventResult) -> list[tuple[str, str | None]]:
    """Return the steps, with their outcomes."""
    return [(each.what, each.outcome) for each in event.steps]


def test_an_event_is_reported_from_publishing_to_delivery(sending: Sending) -> None:
    """Its position, its arrival, the attempt, and the delivery as delivered."""
    sending.begin(3, crm="/healthy/crm")
    sending.deliver()

    event = one(sending, "2")

    assert (event.position.bus, event.position.topic, event.status, event.source) == (
        "orders",
        "placed",
        "valid",
        "/shop",
    )
    assert steps(event) == [("published", None), ("landed", "valid"), ("attempt", "delivered")]
    (delivery,) = event.deliveries
    assert (delivery.rule, delivery.target, delivery.state, delivery.attempts) == ("orders", "crm", "delivered", 1)
    assert (event.steps[-1].code, event.steps[-1].response_head) == (200, "ok\n")
    sent = find_sent_request(sending.runtime, event.deliveries, delivery.delivery_id)
    assert sent is not None
    assert (json.loads(sent.payload)["id"], dict(sent.headers)["webhook-id"]) == ("2", delivery.delivery_id)
    assert [each["webhook_id"] for each in sending.requests()].count(delivery.delivery_id) == 1


def test_each_rule_says_which_condition_fails_with_the_value_seen(sending: Sending) -> None:
    """Rules that match and rules that do not, disabled ones too; each condition with its value."""
    text = rules({"crm": http("/healthy/crm")}) + "\n".join(
        [
            "  big:",
            "    bus: orders",
            "    pattern: {type: [order.placed], data: {amount: [{numeric: ['>', 100]}]}}",
            "    targets: {crm: {type: http, url: 'http://127.0.0.1:1/never', allow_http: true}}",
            "  asleep:",
            "    bus: orders",
            "    enabled: false",
            "    pattern: {}",
            "    targets: {crm: {type: http, url: 'http://127.0.0.1:1/never', allow_http: true}}",
            "",
        ]
    )
    sending.write(text)
    sending.publish(1)
    sending.deliver()

    found = {each.rule: each for each in one(sending).rules}

    assert {name: (each.enabled, each.matched) for name, each in found.items()} == {
        "orders": (True, True),
        "big": (True, False),
        "asleep": (False, True),
    }
    met, failed = found["big"].conditions
    assert (met.met, met.path, met.values) == (True, "$.type", ('"order.placed"',))
    assert (failed.met, failed.path, failed.values) == (False, "$.data.amount", ("10",))
    assert {each.change for each in found.values()} == {"same"}


def test_one_rule_may_be_asked_alone(sending: Sending) -> None:
    """Its result and deliveries, as among all rules; an unknown rule has none."""
    sending.write(rules({"crm": http("/healthy/crm")}) + _further_rule("audit", http("/healthy/audit")))
    sending.publish(1)
    sending.deliver()

    whole = one(sending)
    (alone,) = why(sending.runtime, "1", rule="audit").events
    (unknown,) = why(sending.runtime, "1", rule="nobody").events

    assert {each.rule for each in whole.rules} == {each.rule for each in whole.deliveries} == {"orders", "audit"}
    assert alone.rules == tuple(each for each in whole.rules if each.rule == "audit")
    assert alone.deliveries == tuple(each for each in whole.deliveries if each.rule == "audit")
    assert (alone.landings, unknown.landings) == (whole.landings, whole.landings)
    assert (unknown.rules, unknown.deliveries) == ((), ())


def _further_rule(name: str, target: str) -> str:
    return f"  {name}:\n    bus: orders\n    pattern: {{}}\n    targets:\n      crm: {target}\n"


def test_rules_are_those_of_then_and_todays_are_compared(sending: Sending) -> None:
    """A rule that changed since, a removed one and a new one are reported, with the result of the current rules."""
    sending.begin(1, crm="/healthy/crm")
    sending.deliver()
    sending.write(
        rules({"crm": http("/healthy/crm")}, rule="later")
        + "  orders:\n    bus: orders\n    pattern: {type: [order.paid]}\n    targets:\n"
        + f"      crm: {http('/healthy/crm')}\n"
    )

    found = {each.rule: each for each in one(sending).rules}

    assert (found["orders"].matched, found["orders"].change, found["orders"].current_version_matches) == (
        True,
        "changed",
        False,
    )
    assert (found["later"].change, found["later"].current_version_matches) == ("added", True)
    sending.remove()
    assert {each.rule: each.change for each in one(sending).rules} == {"orders": "removed", "other": "added"}


def test_attempts_of_all_batches_are_reported_in_order(sending: Sending) -> None:
    """What failed, was pending, was tried again by a retry batch and died, with code and reason of each attempt."""
    policy = "{policy: custom, max_retries: 1, initial_delay: 1h, multiplier: 1, max_delay: 1h}"
    sending.begin(1, crm=http(REFUSED, retry=policy))
    sending.deliver()
    (waiting,) = one(sending).deliveries

    assert (waiting.state, waiting.attempts) == ("scheduled", 1)
    sending.site.clock.advance(5000)  # an hour, and its jitter
    sending.retry()

    event = one(sending)
    assert [each for each in steps(event) if each[0] != "landed"] == [
        ("published", None),
        ("attempt", "retry_scheduled"),
        ("pending", "closed"),
        ("attempt", "dead_lettered"),
        ("dead-lettered", None),
    ]
    assert [each.attempt for each in event.steps if each.what == "attempt"] == [1, 2]
    assert [(each.state, each.reason) for each in event.deliveries] == [("dead_lettered", "maximum_retry_attempts")]


def test_a_delivery_refused_by_a_shadow_is_shown_as_shadow(sending: Sending) -> None:
    """The reconciliation counts it as settled; `why` reports its response, or that it has the event."""
    missing = ", transform: {form: JSONPATH, value: $.data.nowhere, missing: error}"
    paths = {"taken": ("/healthy/new", ""), "refused": ("/status/400", ""), "unsent": ("/healthy/unsent", missing)}
    shadows = {
        name: f'{{type: http, url: "{path}", allow_http: true, timeout: 1s, shadow_of: crm{more}}}'
        for name, (path, more) in paths.items()
    }
    sending.begin(2, crm="/healthy/crm", **shadows)
    sending.deliver()

    event = one(sending)

    assert {each.target: (each.state, each.reason) for each in event.deliveries} == {
        "crm": ("delivered", None),
        "taken": ("delivered", None),
        "refused": ("shadow", "HTTP 400"),
        "unsent": ("shadow", "shadow_failed"),
    }
    assert {each.target: each.outcome for each in event.steps if each.target} == {
        "crm": "delivered",
        "taken": "delivered",
        "refused": "shadow",
        "unsent": "shadow",
    }


def test_a_pending_delivery_is_reported_with_its_reason(sending: Sending) -> None:
    """A delivery that an operator's hold keeps is on hold, and why."""
    sending.begin(1, crm=http(REFUSED))
    sending.deliver()
    sending.runtime.ledger.pending.hold("orders", "crm", "rule paused")

    (delivery,) = one(sending).deliveries

    assert (delivery.state, delivery.hold_reason) == ("on_hold", "rule paused")
    assert "on hold: rule paused" in [each.detail for each in one(sending).steps]


def test_a_redrive_and_a_copy_for_a_queue_are_followed(sending: Sending) -> None:
    """The dead letter, its copy in the dead letter queue, and the delivery that a redrive made."""
    queue = http("/healthy/dead-letters")
    sending.begin(1, crm=http(REFUSED, retry=NO_RETRY, dead_letter_queue=queue))
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    begun = begin_redrive(sending.runtime, Selection(), "run", rate=None, retransform=False, again=False)
    deliver_redrive(sending.runtime, begun.redrive_id, InProcessRouter(sending.runtime.store))

    event = one(sending)

    assert {each.target: each.state for each in event.deliveries} == {
        "crm": "delivered",
        "crm/dead_letter_queue": "delivered",
    }
    reported = [each.what for each in event.steps]
    assert reported.index("dead-lettered") < reported.index("redriven")
    assert f"redrive {begun.redrive_id}" in [each.detail for each in event.steps]


def test_an_event_that_never_became_valid_is_reported(sending: Sending, order: Callable[..., bytes]) -> None:
    """A duplicate names what was kept instead; what is not a CloudEvent, or no JSON, is found by the id it claims."""
    sending.begin(order(1), order(1), b'{"id": "broken", "type": "x"}', b'{"id": "torn", ', crm="/healthy/crm")
    sending.deliver()

    kept, doubled = sorted(why(sending.runtime, "1").events, key=lambda each: each.status != "valid")
    broken, torn = one(sending, "broken"), one(sending, "torn")

    assert (doubled.status, doubled.duplicate_of, doubled.deliveries) == ("duplicate", str(kept.position), ())
    assert [each.state for each in kept.deliveries] == ["delivered"]
    for event in (broken, torn):
        assert (event.status, event.rules, steps(event)[-1]) == ("malformed", (), ("dead-lettered", None))
        assert event.reason


def test_the_same_id_from_two_sources_is_reported_twice(sending: Sending, order: Callable[..., bytes]) -> None:
    """Both messages, each with its own deliveries."""
    sending.begin(order(1), order(1, source="/other"), crm="/healthy/crm")
    sending.deliver()

    events = why(sending.runtime, "1").events

    assert sorted(str(each.source) for each in events) == ["/other", "/shop"]
    assert len({each.deliveries[0].delivery_id for each in events}) == 2


def test_an_event_in_progress_and_one_not_landed_are_reported(sending: Sending) -> None:
    """Routed and not pushed: in progress. Published and not taken: it lies on its bus, not landed yet."""
    runtime = sending.begin(1, crm="/healthy/crm")
    routed(runtime)
    sending.publish(1)

    (delivery,) = one(sending).deliveries
    waiting = why(runtime, "2")

    assert delivery.state == "in_progress"
    assert waiting.events == ()
    assert [(each.bus, each.topic) for each in waiting.not_landed] == [("orders", "placed")]


def test_an_event_before_the_start_of_its_runner_is_reported(sending: Sending, order: Callable[..., bytes]) -> None:
    """Its runner began behind it, so no batch takes it; the result says where it is on its bus."""
    sending.write(rules({"crm": http("/healthy/crm")}, start_at="latest"))
    sending.publish(order("early"))
    sending.deliver()

    (found,) = why(sending.runtime, "early").before_start
    assert (found.position.bus, found.position.topic) == ("orders", "placed")
    before = [(each.runner, each.offset) for each in found.runners]
    assert before == [("orders", found.position.offset + 1)]

    sending.publish(*[order(number) for number in range(20)])
    sending.deliver()
    (same,) = why(sending.runtime, "early").before_start
    assert same == found
    assert all(why(sending.runtime, str(number)).before_start == () for number in range(20))
    with pytest.raises(NotFoundError):
        why(sending.runtime, "never")


def test_a_webhook_id_leads_to_its_event(sending: Sending) -> None:
    """A target names the delivery by the header `webhook-id`: the result is that of its event, and says so."""
    sending.begin(3, crm="/healthy/crm")
    sending.deliver()
    (delivery,) = one(sending).deliveries
    found = why(sending.runtime, delivery.delivery_id)

    assert found.event_id == "1"
    assert found.events == why(sending.runtime, "1").events
    assert found.notes[0] == f"{delivery.delivery_id} is the id of a delivery: of event 1 to the target orders/crm"
    with pytest.raises(NotFoundError, match=r"No delivery since .* has this id as its webhook-id either"):
        why(sending.runtime, "b76c3677-fd41-8c86-acbc-aea2c0e21838")


def test_an_unknown_id_is_an_error_that_names_the_range_searched(sending: Sending) -> None:
    """It names the range of the batches; a missing bus is refused by name."""
    sending.begin(1, crm="/healthy/crm")
    sending.deliver()

    with pytest.raises(NotFoundError, match=r"no event .nobody. on any bus.*1 batch planned"):
        why(sending.runtime, "nobody")
    with pytest.raises(NotFoundError, match="no bus 'ordres'"):
        why(sending.runtime, "1", bus="ordres")
    with pytest.raises(NotFoundError, match="no batch was planned in that time"):
        why_between(sending.runtime, "1", None, None, "2020-01-01")


def test_data_removed_by_retention_is_reported(sending: Sending) -> None:
    """Without the attempts the event and its dead letter are still shown; without the archive it is shown as
    removed.
    """
    runtime = sending.begin(1, crm=http(REFUSED, retry=NO_RETRY), settings={"retention_deliveries": 86400})
    sending.deliver()
    sending.site.clock.advance(timedelta(days=2).total_seconds())
    maintain(runtime)

    event = one(sending)

    assert "pruned" in [each.what for each in event.steps]
    assert [each.state for each in event.deliveries] == ["dead_lettered"]
    sending.site.clock.advance(timedelta(days=40).total_seconds())
    maintain(runtime)
    with pytest.raises(NotFoundError, match="past its retention"):
        why(runtime, "1")


def test_an_unreadable_file_is_named_and_the_rest_is_shown(sending: Sending) -> None:
    """If a settlement is lost, the event is found and the gap named; if an archive file is lost, the event may be in
    it.
    """
    runtime = sending.begin(1, crm="/healthy/crm")
    sending.deliver()
    (batch,) = runtime.ledger.batches.find()
    (file,) = runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
    runtime.store.delete(str(file.path))

    found: Any = why(runtime, "1")

    assert [each.status for each in found.events] == ["valid"]
    assert str(file.path) in found.unreadable[0]
    (archive,) = runtime.ledger.files.list_for_batch(batch.batch_id, "buffer")
    runtime.store.delete(str(archive.path))
    with pytest.raises(PartlySearched, match="may be incomplete"):
        why(runtime, "1")


@pytest.fixture
def batch_of_many_chunks(sending: Sending) -> Sending:
    """An open batch in streaming mode whose event went to three targets, each in a chunk of its own; one refuses it."""
    sending.begin(
        settings={"chunk_max_deliveries": 1},
        crm="/healthy/crm",
        note="/healthy/note",
        strict=http("/bad/strict", retry=NO_RETRY),
        harsh=http("/bad/harsh", retry=NO_RETRY),
    )
    with a_streaming_task(sending):
        sending.publish(1)
        until(lambda: len(sending.requests()) == 4)
    return sending


def test_each_attempt_of_a_batch_is_reported_once(batch_of_many_chunks: Sending) -> None:
    """Its segments show deliveries of any chunk, so they are read once, however many chunks the event is in."""
    event = one(batch_of_many_chunks)

    attempts = [(each.target, each.outcome) for each in event.steps if each.what == "attempt"]
    assert sorted(attempts) == [
        ("crm", "delivered"),
        ("harsh", "dead_lettered"),
        ("note", "delivered"),
        ("strict", "dead_lettered"),
    ]


def test_a_dead_letter_of_a_batch_holds_each_attempt_once(batch_of_many_chunks: Sending) -> None:
    """Also where other deliveries of the batch were dead-lettered in other chunks."""
    runtime = batch_of_many_chunks.runtime
    files = [
        file.path
        for batch in runtime.ledger.batches.find(limit=None)
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter")
        if file.path is not None
    ]
    entries = [
        dead_letter
        for path in files
        for dead_letter in read_dead_letters(runtime.store, path, None, ["target", "attempts"]).to_pylist()
    ]

    assert sorted((dead_letter["target"], len(dead_letter["attempts"])) for dead_letter in entries) == [
        ("harsh", 1),
        ("strict", 1),
    ]


def test_an_unrecorded_attempt_is_not_denied(sending: Sending) -> None:
    """The process of a push may have died between sending the delivery and recording it."""
    batch = sending.routed(1, crm="/healthy/crm")
    runtime = sending.runtime
    assert runtime.ledger.chunks.claim(batch.batch_id, 0, "killed") is not None
    write_dead_letters(runtime, batch.batch_id)
    schedule_retries(runtime, batch.batch_id)

    (settled,) = (each for each in one(sending).steps if each.what == "settled")

    assert settled.outcome == "unknown"
    assert settled.detail == (
        "no attempt is recorded: the delivery was not sent, or its process ended before it recorded the attempt"
    )
