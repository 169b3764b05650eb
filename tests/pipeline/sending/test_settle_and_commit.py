"""Settlement, dead letters, retries and commit give a delivery one final status and reconcile before offsets move."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, http, settled
from pipeline.settled_rows import table_of
from stored import dead_letters

from eventbridge import fault_points
from eventbridge.errors import BusError, ReconciliationError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import BatchFile
from eventbridge.model.outcome import SettledDelivery
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import records
from eventbridge.pipeline.settle.statuses import read_settled_tables
from eventbridge.repair.audit import audit
from eventbridge.store import layout
from eventbridge.store.parquet import read_table, write_table

Order = Callable[..., bytes]


def test_commit_moves_the_offsets_and_writes_the_manifest(sending: Sending, site: Any) -> None:
    """A batch that is reconciled is committed: offsets in the ledger and on the bus, and the manifest."""
    batch = sending.routed(20, b"not json", crm="/healthy/crm", bad="/bad/x")
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)

    assert commit(runtime, batch.batch_id)

    manifest = json.loads(runtime.store.get(layout.manifest(batch.planned_at, batch.batch_id)))
    assert sum(runtime.ledger.offsets.committed(RUNNER).values()) == 21
    assert manifest["format"] == 1
    assert manifest["counts"]["read"] == 21
    assert manifest["counts"]["malformed"] == 1
    assert manifest["fingerprints"]["delivered"]["orders/crm"][0] == 20
    assert manifest["fingerprints"]["dead"]["orders/bad"][0] == 20
    with site.bus() as bus:
        assert bus.committed(RUNNER) == runtime.ledger.offsets.committed(RUNNER)
    assert runtime.ledger.settlement.bus_commits_outstanding(RUNNER) == []
    assert audit(runtime).differences == ()


def test_stages_before_their_time_do_nothing(sending: Sending) -> None:
    """On a batch that was not routed, settling, scheduling retries and committing change nothing."""
    runtime = sending.begin(1, crm=REFUSED)
    batch_id = listen(runtime, RUNNER)
    assert batch_id is not None

    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)

    assert not commit(runtime, batch_id)
    assert runtime.ledger.batches.get(batch_id).state == "planned"


def test_deliveries_without_an_outcome_are_due_now_without_an_attempt(sending: Sending) -> None:
    """Deliveries without an outcome are pending in the slow lane and due immediately, without an attempt."""
    batch = sending.routed(7, crm=REFUSED)
    runtime = sending.runtime
    sending.settle(batch)

    assert commit(runtime, batch.batch_id)

    (row,) = runtime.ledger.pending.find()
    assert (row.reason, row.count, row.attempts, row.lane, row.state) == ("unknown", 7, 0, "slow", "scheduled")
    assert row.lineage == ()


def test_a_refused_connection_is_pending_with_its_attempt_and_due_time(sending: Sending) -> None:
    """retry_scheduled keeps the policy's due time and counts the attempt that was made."""
    batch = sending.routed(5, crm=REFUSED)
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)

    assert commit(runtime, batch.batch_id)

    rows = runtime.ledger.pending.find()
    assert sum(row.count for row in rows) == 5
    assert {(row.reason, row.attempts) for row in rows} == {("retry_scheduled", 1)}
    waits = [(row.due_at - batch.planned_at).total_seconds() for row in rows]
    assert all(3600 * 0.8 <= wait <= 3600 * 1.2 + 20 for wait in waits)
    due_by_policy = [row.due_at for row in settled(runtime, batch.batch_id)["crm"]]
    assert max(row.due_at for row in rows) >= max(due_by_policy), "nothing goes before its policy allows"
    assert all(row.lineage == ((batch.batch_id, row.chunk_id),) for row in rows)


def test_a_dead_letter_holds_the_event_the_request_and_every_attempt(sending: Sending, order: Order) -> None:
    """The record of a refused delivery has what arrived, what was sent, what was responded to, and why it ended."""
    body = order(1, amount=5)
    batch = sending.routed(body, bad="/bad/x")
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)

    (record,) = list(dead_letters(runtime, whole=True))

    (attempt,) = record["attempts"]
    assert record["event"] == body
    assert record["request"] == body
    assert record["reason"] == "non_retryable"
    assert (attempt["number"], attempt["code"], attempt["outcome"]) == (1, 400, "dead_lettered")
    assert attempt["response_head"] == b"no such customer\n"
    assert delivery_id_text(record["delivery_id"]) == sending.requests()[0]["webhook_id"]


def test_a_malformed_event_is_a_dead_letter_with_its_reason(sending: Sending) -> None:
    """A message that is not a CloudEvent becomes a complete dead letter and never a delivery."""
    batch = sending.routed(b'{"id": "only an id"}', crm=REFUSED)
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)

    assert commit(runtime, batch.batch_id)

    (record,) = list(dead_letters(runtime, whole=True))
    assert (record["reason"], record["delivery_id"]) == ("malformed", None)
    assert record["event"] == b'{"id": "only an id"}'
    assert record["detail"]


def test_a_transform_that_fails_is_a_dead_letter_and_holds_up_nothing(sending: Sending, order: Order) -> None:
    """A failing transform ends its delivery immediately; the other event of the same rule is delivered."""
    target = http("/healthy/crm", transform="{form: JSONPATH, value: $.data.note, missing: error}")
    batch = sending.routed(order(1), order(2, data={"note": "here"}), crm=target)
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)

    assert commit(runtime, batch.batch_id)

    (record,) = list(dead_letters(runtime, whole=True))
    assert (record["reason"], record["event_id"], record["request"]) == ("transform_failed", "1", None)
    assert len(sending.requests()) == 1
    assert audit(runtime).differences == ()


def test_settling_again_changes_no_status(sending: Sending) -> None:
    """The settlement is written once; a later write_dead_letters reads it and adds nothing."""
    batch = sending.routed(5, crm="/healthy/crm")
    runtime = sending.runtime
    write_dead_letters(runtime, batch.batch_id)
    before = settled(runtime, batch.batch_id)

    sending.settle(batch)
    schedule_retries(runtime, batch.batch_id)

    assert settled(runtime, batch.batch_id) == before
    assert sum(row.count for row in runtime.ledger.pending.find()) == 5


def test_the_loser_of_two_settlements_takes_the_winners_statuses(
    sending: Sending, site: Any, clock: RunningClock
) -> None:
    """A process with other statuses discards them when the file appears; pending rows follow the file."""
    batch = sending.routed(2, crm=REFUSED)
    runtime = sending.runtime
    winner = site.reopen()
    path = layout.settlement(batch.planned_at, batch.batch_id)
    first: list[bytes] = []

    def overtake(point: str) -> None:
        if point in ("store.create", "store.put"):
            fault_points.install(None)
            clock.advance(5)  # untried deliveries are due when they are settled
            write_dead_letters(winner, batch.batch_id)
            schedule_retries(winner, batch.batch_id)
            first.append(winner.store.get(path))

    fault_points.install(overtake)
    write_dead_letters(runtime, batch.batch_id)
    schedule_retries(runtime, batch.batch_id)

    assert first == [runtime.store.get(path)]
    assert commit(runtime, batch.batch_id)
    assert sum(row.count for row in runtime.ledger.pending.find()) == 2


def test_a_deficit_is_closed_by_a_supplement(sending: Sending, caplog: pytest.LogCaptureFixture) -> None:
    """A supplement makes deliveries that a settlement lacks unknown and pending, with an alarm; then it commits."""
    batch = sending.routed(10, crm="/healthy/crm")
    runtime = sending.runtime
    sending.push(batch)
    _settle_with(runtime, batch, lambda rows: rows[:-3])
    sending.settle(batch)

    with caplog.at_level(logging.ERROR):
        assert commit(runtime, batch.batch_id)

    assert "lacks, now settled: 3" in caplog.text
    assert sum(row.count for row in runtime.ledger.pending.find()) == 3
    assert len(runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")) == 2
    assert audit(runtime).differences == ()


def test_a_deficit_dead_letters_nothing_either(sending: Sending) -> None:
    """Missing deliveries of a target with `errors_tolerance: none` are kept, although there is nothing to send."""
    transform = "{form: JSONPATH, value: $.data.nothing, missing: error}"
    batch = sending.routed(2, crm=http("/healthy/crm", errors_tolerance="none", transform=transform))
    runtime = sending.runtime
    sending.push(batch)
    _settle_with(runtime, batch, lambda rows: [])
    sending.settle(batch)

    assert commit(runtime, batch.batch_id)

    assert [row.status for row in settled(runtime, batch.batch_id)["crm"]] == ["retry_scheduled", "retry_scheduled"]
    assert sum(row.count for row in runtime.ledger.pending.find()) == 2
    assert list(dead_letters(runtime)) == []
    assert audit(runtime).differences == ()


def test_a_surplus_stops_the_commit_and_names_the_delivery(sending: Sending) -> None:
    """A settlement that names a delivery twice commits nothing; the error lists the id."""
    batch = sending.routed(4, crm="/healthy/crm")
    runtime = sending.runtime
    sending.push(batch)
    _settle_with(runtime, batch, lambda rows: [*rows, rows[0]])
    sending.settle(batch)
    doubled = delivery_id_text(settled(runtime, batch.batch_id)["crm"][0].delivery_id)

    with pytest.raises(ReconciliationError, match=doubled):
        commit(runtime, batch.batch_id)

    assert sum(runtime.ledger.offsets.committed(RUNNER).values()) == 0


def test_a_delivered_status_without_a_recorded_response_stops_the_commit(sending: Sending) -> None:
    """A settlement with a delivered status but without a recorded response is not committed."""
    batch = sending.routed(1, crm=REFUSED)
    runtime = sending.runtime
    _settle_with(runtime, batch, lambda rows: [replace(row, status="delivered") for row in rows])
    sending.settle(batch)

    with pytest.raises(ReconciliationError, match="without a proof"):
        commit(runtime, batch.batch_id)


@pytest.mark.parametrize("kind", ["buffer", "delivery", "outcome", "settlement", "dead_letter"])
def test_a_missing_file_stops_the_commit(sending: Sending, kind: str) -> None:
    """If any file of the reconciliation cannot be read, nothing is committed and the error names the file."""
    batch = sending.routed(4, bad="/bad/crm")
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)
    (path, *_) = [file.path for file in runtime.ledger.files.list_for_batch(batch.batch_id, kind) if file.path]
    runtime.store.delete(path)

    with pytest.raises(ReconciliationError, match=str(path)):
        commit(runtime, batch.batch_id)

    assert sum(runtime.ledger.offsets.committed(RUNNER).values()) == 0


def test_a_commit_without_its_pending_rows_is_refused(sending: Sending) -> None:
    """Without schedule_retries the deliveries to retry would be lost, so commit refuses."""
    batch = sending.routed(1, crm=REFUSED)
    runtime = sending.runtime
    write_dead_letters(runtime, batch.batch_id)

    with pytest.raises(ReconciliationError, match="pending by the settlement"):
        commit(runtime, batch.batch_id)


def test_a_bus_that_refuses_the_offsets_is_reported_by_the_next_listen(
    sending: Sending, site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger's commit stands; the alarm is logged and the next listen repeats the bus commit."""
    batch = sending.routed(4, crm="/healthy/crm")
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)
    fault_points.install(_bus_refuses)
    with caplog.at_level(logging.ERROR):
        assert commit(runtime, batch.batch_id)
    fault_points.install(None)
    assert "ALARM" in caplog.text
    with site.bus() as bus:
        assert sum(bus.committed(RUNNER).values()) == 0

    assert listen(runtime, RUNNER) is None

    with site.bus() as bus:
        assert sum(bus.committed(RUNNER).values()) == 4


def _bus_refuses(point: str) -> None:
    if point == "bus.commit":
        raise BusError("the bus is down")


def _settle_with(runtime: Any, batch: Any, change: Callable[[list[SettledDelivery]], list[SettledDelivery]]) -> None:
    """Write the batch's settlement with the real stage in a copy, change its rows, and store the result."""
    runtime.ledger.settlement.begin(batch.batch_id)
    tables = read_settled_tables(runtime, runtime.ledger.batches.get(batch.batch_id))
    rows = [row for table in tables for row in records(table)]
    path = layout.settlement(batch.planned_at, batch.batch_id)
    write_table(runtime.store, path, table_of(change(rows)), create=True)
    count = read_table(runtime.store, path, columns=["row"]).num_rows
    runtime.ledger.files.record(BatchFile(batch.batch_id, "settlement", "000000", path, count), while_state="settling")
