"""A redrive redelivers dead letters, one batch at a time, and everything is reconciled."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipeline.delivering import REFUSED, Sending, http, rules
from stored import dead_letters

from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.control.release import release_rule
from eventbridge.dead_letters.reader import select_dead_letters
from eventbridge.dead_letters.redrive_plan import NO_REQUEST, REDRIVEN_BEFORE, begin_redrive, plan_redrive, survey
from eventbridge.dead_letters.redrives import Marks
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.redelivery import Redrive
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.settle.settlement import read_settled
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.batch_files import dead_letter_files
from eventbridge.store.protocol import Store

NO_RETRY = "{policy: custom, max_retries: 0}"
ALL = Selection()


def request(sending: Sending, selection: Selection = ALL, run: str = "run", **options: Any) -> Redrive:
    """Begin a redrive."""
    chosen = {"rate": None, "retransform": False, "again": False} | options
    return begin_redrive(sending.runtime, selection, run, **chosen)


def redrive(sending: Sending, selection: Selection = ALL, run: str = "run", **options: Any) -> int:
    """Begin a redrive and deliver all of it; return how many batches that took."""
    begun = request(sending, selection, run, **options)
    return deliver_redrive(sending.runtime, begun.redrive_id, InProcessRouter(sending.runtime.store))


def outcomes(sending: Sending) -> Counter[str]:
    """Return the outcomes of the dead letters; `never` = not redriven."""
    marks = Marks(sending.runtime)
    found = (marks.mark(each) for each in select_dead_letters(sending.runtime))
    return Counter("never" if mark is None else mark.outcome for mark in found)


def test_dead_letters_are_delivered_again_under_their_ids(sending: Sending) -> None:
    """The recovered target gets the same requests under the same delivery ids, and all is reconciled."""
    sending.begin(3, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    died = {delivery_id_text(record["delivery_id"]) for record in dead_letters(sending.runtime)}
    sending.rules(crm="/healthy/crm")

    assert redrive(sending) == 1

    assert {request["webhook_id"] for request in sending.requests()} == died
    assert outcomes(sending) == {"delivered": 3}
    assert audit(sending.runtime).differences == ()
    (found,) = sending.runtime.ledger.redrives.all()
    assert (found.state, Marks(sending.runtime).counts(found)) == ("done", {"delivered": 3})


@pytest.mark.parametrize("column", ["rule", "event"])
def test_dead_letters_that_cannot_be_read_keep_no_others_from_it(sending: Sending, column: str) -> None:
    """A redrive takes the dead letters of all other files, even if it fails late to read the first ones."""
    runtime = sending.begin(2, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    sending.publish(3)
    sending.deliver()
    _, first = dead_letter_files(runtime)
    damage_column(runtime.store, first, column)
    sending.rules(crm="/healthy/crm")

    found = survey(runtime, ALL, retransform=False, again=False)
    assert redrive(sending) == 1

    assert len(sending.requests()) == 3
    assert len(found.damaged) == (column == "rule")
    (done,) = runtime.ledger.redrives.all()
    assert done.state == "done"
    assert Marks(runtime).counts(done) == {"delivered": 3}


def damage_column(store: Store, path: str, name: str) -> None:
    """Break the pages of one column of a Parquet file; all other columns can still be read."""
    content = bytearray(store.get(path))
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    for group in range(metadata.num_row_groups):
        columns = (metadata.row_group(group).column(index) for index in range(metadata.num_columns))
        (column,) = (each for each in columns if each.path_in_schema == name)
        start = column.dictionary_page_offset or column.data_page_offset
        end = start + column.total_compressed_size
        content[end - 4 : end] = bytes(each ^ 0xFF for each in content[end - 4 : end])
    store.put(path, bytes(content))


def test_a_dead_letter_is_redriven_once_unless_asked(sending: Sending) -> None:
    """A second redrive does not take it, one that says again does; a survey says why."""
    sending.begin(2, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    redrive(sending)

    assert survey(sending.runtime, ALL, retransform=False, again=False).left == {("orders/crm", REDRIVEN_BEFORE): 2}
    assert redrive(sending, run="second") == 0
    assert len(sending.requests()) == 2
    assert redrive(sending, run="third", again=True) == 1
    assert len(sending.requests()) == 4
    assert audit(sending.runtime).differences == ()


def test_a_redriven_dead_letter_that_fails_keeps_all_attempts_and_is_not_redriven_twice(sending: Sending) -> None:
    """Age and attempts count from the redrive; the new dead letter holds the event and the attempts of both lives."""
    sending.begin(1, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()

    assert redrive(sending) == 1

    newest, oldest = dead_letters(sending.runtime, whole=True)
    assert newest["event"] == oldest["event"]
    assert [each["number"] for each in newest["attempts"]] == [1, 1]
    assert newest["attempts"][0] == oldest["attempts"][0]
    assert newest["reason"] == "maximum_retry_attempts"
    assert outcomes(sending) == {"dead_lettered": 1, "never": 1}
    assert audit(sending.runtime).differences == ()


def test_age_counts_from_the_redrive(sending: Sending) -> None:
    """An event that exceeded its maximum age is new again; if it fails it is pending and retried by the policy."""
    sending.begin(
        1,
        crm=http(
            "/healthy/crm",
            retry="{policy: custom, max_retries: 3, initial_delay: 1h, max_delay: 1h, maximum_event_age: 2h}",
        ),
    )
    sending.rules(
        crm=http(
            REFUSED, retry="{policy: custom, max_retries: 3, initial_delay: 1h, max_delay: 1h, maximum_event_age: 1s}"
        )
    )
    sending.deliver()
    (dead_letter,) = dead_letters(sending.runtime)
    assert dead_letter["reason"] == "maximum_event_age"
    sending.rules(
        crm=http(
            REFUSED, retry="{policy: custom, max_retries: 3, initial_delay: 1h, max_delay: 1h, maximum_event_age: 2h}"
        )
    )
    sending.site.clock.advance(90_000)

    redrive(sending)

    (row,) = sending.runtime.ledger.pending.find()
    assert (row.state, row.attempts, row.runner) == ("scheduled", 1, "orders")
    assert outcomes(sending) == {"pending": 1}
    sending.rules(crm="/healthy/crm")
    sending.site.clock.advance(5_000)
    sending.deliver()
    assert outcomes(sending) == {"delivered": 1}
    assert audit(sending.runtime).differences == ()


def test_many_dead_letters_are_several_batches_and_cancelling_stops_further_ones(sending: Sending) -> None:
    """A batch holds what a batch may; once cancelled, what is not taken stays a dead letter."""
    sending.begin(5, settings={"batch_max_events": 2}, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    begun = request(sending)
    plan = plan_redrive(sending.runtime, begun.redrive_id)
    assert plan.batch_id is not None

    assert sending.runtime.ledger.redrives.end(begun.redrive_id, "cancelled")

    assert redrive(sending) == 1, "the batch that was planned is finished, by the next run"
    assert outcomes(sending) == {"delivered": 2, "never": 3}
    assert redrive(sending, run="other") == 2
    assert outcomes(sending) == {"delivered": 5}
    assert audit(sending.runtime).differences == ()


def test_a_rate_spaces_the_batches(sending: Sending) -> None:
    """A batch holds what ten seconds allow, and the next one comes when its time has come."""
    sending.begin(3, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    begun = request(sending, rate=0.2)
    first = plan_redrive(sending.runtime, begun.redrive_id)
    assert first.batch_id is not None
    assert sum(each.count for each in sending.runtime.ledger.redrives.list_taken_by(first.batch_id)) == 2
    sending.push(sending.runtime.ledger.batches.get(first.batch_id))
    sending.settle(sending.runtime.ledger.batches.get(first.batch_id))
    commit(sending.runtime, first.batch_id)

    waiting = plan_redrive(sending.runtime, begun.redrive_id)

    assert waiting.batch_id is None
    assert waiting.wait_until is not None
    sending.site.clock.advance(10)
    assert plan_redrive(sending.runtime, begun.redrive_id).batch_id is not None
    with pytest.raises(UserError, match="cannot be kept"):
        request(sending, run="slow", rate=0.01)


def test_retransform_routes_the_event_through_the_current_rule(sending: Sending) -> None:
    """After the rule was repaired: a new request, under an id of this replay, for that target alone."""
    broken = http("/healthy/crm", transform="{form: JSONPATH, value: $.data.absent, missing: error}")
    sending.begin(2, crm=broken, other="/healthy/other")
    sending.deliver()
    died = {delivery_id_text(record["delivery_id"]) for record in dead_letters(sending.runtime)}
    assert survey(sending.runtime, ALL, retransform=False, again=False).left == {("orders/crm", NO_REQUEST): 2}
    sending.rules(crm=http("/healthy/crm", transform="{form: JSONPATH, value: $.data.id}"), other="/healthy/other")

    assert redrive(sending, retransform=True) == 1

    sent = [request for request in sending.requests() if request["path"] == "/healthy/crm"]
    assert len(sent) == 2
    assert not died & {request["webhook_id"] for request in sent}
    assert len([each for each in sending.requests() if each["path"] == "/healthy/other"]) == 2
    assert outcomes(sending) == {"delivered": 2}
    assert audit(sending.runtime).differences == ()


def test_an_event_that_todays_rule_does_not_match_is_said(sending: Sending) -> None:
    """It was redriven, and there was nothing to deliver."""
    sending.begin(1, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    sending.write(rules({"crm": "/healthy/crm"}).replace("order.placed", "order.paid"))

    assert redrive(sending, retransform=True) == 1

    assert outcomes(sending) == {"unmatched": 1}
    assert audit(sending.runtime).differences == ()


def test_retransform_takes_numbers_of_any_length(sending: Sending) -> None:
    """Python refuses integers of more than 4,300 digits; one such dead letter would end its redrive, each time
    again.
    """
    event = b'{"specversion":"1.0","id":"long","source":"/shop","type":"order.placed","data":{"n":%s}}' % (b"7" * 5_000)
    sending.begin(event, 1, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    sending.rules(crm="/healthy/crm")

    assert redrive(sending, retransform=True) == 1

    assert outcomes(sending) == {"delivered": 2}
    assert len(sending.requests()) == 2
    assert audit(sending.runtime).differences == ()


def test_a_deferred_match_of_a_redrive_is_in_progress(sending: Sending) -> None:
    """A budgeted rule's share that became a deferred match is not "unmatched"; later its outcome is the mark's."""
    program = "transform: {form: JSONATA, value: data.id}"
    expensive = http(REFUSED, retry=NO_RETRY)[:-1] + f", {program}}}"
    sending.begin(2, crm=expensive)
    sending.deliver()
    sending.rules(crm=expensive.replace(REFUSED, "/healthy/crm"))
    version = sending.runtime.rule_set().rules["orders"].version
    sending.runtime.ledger.rules.hold("orders", version, "under investigation")

    assert redrive(sending, retransform=True) == 1

    assert outcomes(sending) == {"in_progress": 2}
    release_rule(sending.runtime, "orders")
    sending.deliver()
    assert outcomes(sending) == {"delivered": 2}
    assert len(sending.requests()) == 2
    assert audit(sending.runtime).differences == ()


def test_a_redrive_whose_process_died_is_settled_and_nothing_is_lost(sending: Sending) -> None:
    """What was planned and not pushed is pending, and delivered by the retries."""
    sending.begin(2, crm=http(REFUSED, retry=NO_RETRY))
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    begun = request(sending)
    plan = plan_redrive(sending.runtime, begun.redrive_id)
    assert plan.batch_id is not None
    sending.site.clock.advance(200)

    sending.deliver()

    assert {row.status for row in read_settled(sending.runtime, plan.batch_id)} == {"unknown"}
    assert outcomes(sending) == {"delivered": 2}
    assert audit(sending.runtime).differences == ()


def test_dead_letters_of_an_ordered_target_are_redriven_in_order(sending: Sending) -> None:
    """They get their order keys, and go one after the other as their events lie on the bus."""
    sending.begin(6, crm=http(REFUSED, retry=NO_RETRY, ordering_key="partition"))
    sending.deliver()
    sending.rules(crm=http("/healthy/crm", ordering_key="partition"))

    assert redrive(sending) == 1
    sending.deliver()

    assert outcomes(sending) == {"delivered": 6}
    ordinals = {
        delivery_id_text(each["delivery_id"]): (each["partition_id"], each["offset"])
        for each in dead_letters(sending.runtime)
    }
    came = [ordinals[request["webhook_id"]] for request in sending.requests()]
    for number in (0, 1):
        assert [each for each in came if each[0] == number] == sorted(each for each in came if each[0] == number)
    assert audit(sending.runtime).differences == ()
