"""Each task of a batch logs one sentence about it, tested with real deliveries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline.delivering import RunningClock, Sending, http

from eventbridge.airflow import sentences
from eventbridge.airflow.sentences import TaskReport
from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.streaming.task import StreamingSummary


@pytest.fixture(autouse=True)
def _airflow_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow reads its configuration from a folder of the test's."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))


@pytest.fixture
def pushed(sending: Sending) -> Callable[[str], TaskReport]:
    """Push again a chunk of a batch of three events, and return what the task says."""

    def again(batch_id: str) -> TaskReport:
        return sentences.push_report(sending.runtime, push(sending.runtime, batch_id, 0), batch_id, 0)

    return again


def test_a_push_says_why_what_it_sent_was_refused(sending: Sending, pushed: Callable[[str], TaskReport]) -> None:
    """With the status, some events, and the address of the chunk on the page; a delivered one says so and no more."""
    refused = sending.routed(3, crm="/status/400", log="/healthy/log")

    reported = pushed(refused.batch_id)

    crm, _, rest = reported.text.partition(". ")
    assert crm.startswith("orders/crm: 3 of 3 dead-lettered, HTTP 400; events ")
    assert len(set(crm.rpartition("events ")[2].split(", "))) == 3
    assert rest == (
        f"orders/log: 3 of 3 delivered. /plugin/eventbridge/eventbridge/page/batches/{refused.batch_id}/chunks/0"
    )
    assert reported.is_warning


def test_a_push_of_which_all_is_delivered_names_no_event(sending: Sending, pushed: Callable[[str], TaskReport]) -> None:
    """It is no warning."""
    batch = sending.routed(3, crm="/healthy/crm")

    assert pushed(batch.batch_id) == TaskReport("orders/crm: 3 of 3 delivered")


def test_a_push_of_nothing_says_why(sending: Sending, pushed: Callable[[str], TaskReport]) -> None:
    """It was sent by another run, or the batch is settled; and what to do."""
    batch = sending.routed(1, crm="/healthy/crm")
    pushed(batch.batch_id)
    sent = pushed(batch.batch_id)
    write_dead_letters(sending.runtime, batch.batch_id)
    settled = pushed(batch.batch_id)

    begin, again = "nothing was sent for chunk 0 of batch", "To send its events again, start a replay"
    assert sent == TaskReport(f"{begin} {batch.batch_id}: another push has already sent it. {again}")
    assert settled.text.endswith(f"the batch is already settled. {again}")


def test_a_push_after_its_deadline_says_so(
    sending: Sending, pushed: Callable[[str], TaskReport], clock: RunningClock
) -> None:
    """It names the deadline, and the DAG that sends the rest."""
    batch = sending.routed(1, crm="/healthy/crm")
    clock.advance(61)

    reported = pushed(batch.batch_id).text
    assert reported.startswith(f"nothing was sent for chunk 0 of batch {batch.batch_id}: its deadline was ")
    assert reported.endswith("; eventbridge_retry_deliveries sends the rest")


def test_the_stages_after_it_say_what_is_dead_lettered_and_what_waits(sending: Sending) -> None:
    """Dead letters with status and events, pending deliveries with the next attempt; both in the note."""
    batch = sending.routed(2, crm="/status/400", shop=http("/status/503"), log="/healthy/log")
    runtime = sending.runtime
    push(runtime, batch.batch_id, 0)
    write_dead_letters(runtime, batch.batch_id)
    entries = sentences.dead_letters_report(runtime, batch.batch_id)
    schedule_retries(runtime, batch.batch_id)
    pending = sentences.pending_report(runtime, batch.batch_id)
    assert commit(runtime, batch.batch_id)
    note = sentences.commit_report(runtime, batch.batch_id)

    assert entries.text.startswith("orders/crm: 2 of 2 dead-lettered, HTTP 400; events ")
    assert pending.text.startswith("orders/shop: 2 of 2 to be tried again, next attempt from ")
    assert note.text.startswith(
        f"batch {batch.batch_id} is committed. 2 dead-lettered: orders/crm: 2 of 2 dead-lettered"
    )
    assert "2 pending: orders/shop: 2 of 2" in note.text
    assert entries.is_warning
    assert pending.is_warning
    assert note.is_warning


def test_a_batch_without_failures_says_so(sending: Sending) -> None:
    """Each stage in one sentence, none of which is a warning."""
    batch = sending.routed(2, crm="/healthy/crm")
    runtime = sending.runtime
    reported = [
        sentences.landing_report(runtime, batch.batch_id),
        sentences.routing_report(runtime, batch.batch_id, 1),
    ]
    sending.push(batch)
    sending.settle(batch)
    reported += [of(runtime, batch.batch_id) for of in (sentences.dead_letters_report, sentences.pending_report)]
    commit(runtime, batch.batch_id)
    reported.append(sentences.commit_report(runtime, batch.batch_id))

    begin = f"batch {batch.batch_id}"
    assert reported == [
        TaskReport(f"{begin}: 2 events landed: 2 valid, 0 duplicate, 0 malformed"),
        TaskReport(f"{begin}: 2 deliveries, 1 push"),
        TaskReport(f"{begin}: no dead letters"),
        TaskReport(f"{begin}: no pending deliveries"),
        TaskReport(f"{begin} is committed; no dead letters, nothing pending"),
    ]


def test_dead_letters_that_cannot_be_read_are_counted(sending: Sending) -> None:
    """A sentence fails no task: the audit names the file."""
    batch = sending.routed(2, crm="/status/400")
    runtime = sending.runtime
    push(runtime, batch.batch_id, 0)
    write_dead_letters(runtime, batch.batch_id)
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter"):
        assert file.path is not None
        Path(sending.runtime.store.uri.removeprefix("file://"), file.path).unlink()

    assert sentences.dead_letters_report(runtime, batch.batch_id).text.startswith(
        "other dead letters: 2 of 2 dead-lettered"
    )


def test_a_streaming_task_reports_the_dead_letters_of_its_batches(sending: Sending) -> None:
    """All its batches are counted together; one without failures says so, and is no warning."""
    began = None
    for count in (2, 1):
        batch = sending.routed(count, crm="/status/400")
        began = began or batch.planned_at
        sending.push(batch)
        sending.settle(batch)
        commit(sending.runtime, batch.batch_id)

    reported = sentences.streaming_task_report(
        sending.runtime, "orders", began or batch.planned_at, StreamingSummary(batches=2, events=3)
    )
    other = sentences.streaming_task_report(
        sending.runtime, "other", batch.planned_at, StreamingSummary(batches=1, events=1, backlog=True)
    )

    begin = "the streaming task of runner orders has ended: 2 batches committed, 3 events read. 3 dead-lettered: "
    assert reported.text.startswith(f"{begin}orders/crm: 3 of 3 dead-lettered, HTTP 400; events ")
    assert reported.is_warning
    assert other == TaskReport(
        "the streaming task of runner other has ended: 1 batch committed, 1 event read; "
        "the following tasks deliver the backlog"
    )
