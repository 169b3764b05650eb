"""A repair runs between the steps of another repair, or of the stages that settle and commit the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from pipeline.delivering import REFUSED, Sending
from stored import dead_letters

from eventbridge import fault_points
from eventbridge.errors import ReconciliationError, SettledAgainError
from eventbridge.model.batch import Batch
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import read_settled
from eventbridge.repair.audit import audit
from eventbridge.repair.repair import repair_batch
from eventbridge.routing.task import InProcessRouter


class _Died(BaseException):
    """A process that was killed."""


@pytest.fixture(autouse=True)
def _unhooked() -> Iterator[None]:
    yield
    fault_points.install(None)


def _at_create(number: int, do: Callable[[], None]) -> None:
    """Do something before so many-th file is created from now on, and have no hook after that."""
    _at(number, "store.create", do)


def _at(number: int, of: str, do: Callable[[], None]) -> None:
    left = [number]

    def hook(point: str) -> None:
        left[0] -= point == of
        if left[0] == 0:
            fault_points.install(None)
            do()

    fault_points.install(hook)


def _die() -> None:
    raise _Died


def _repair(sending: Sending, batch: Batch) -> None:
    repair_batch(sending.runtime, batch.batch_id, InProcessRouter(sending.runtime.store), dry_run=False)


def _finish(sending: Sending, batch: Batch) -> None:
    write_dead_letters(sending.runtime, batch.batch_id)
    schedule_retries(sending.runtime, batch.batch_id)
    commit(sending.runtime, batch.batch_id)


@pytest.mark.parametrize("other_dies_at", [1, 2, 3, 4, None])  # record, settlement, dead letters, manifest
@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("action", [_repair, _finish])
def test_a_repair_in_between_loses_nothing(
    sending: Sending, action: Callable[[Sending, Batch], None], at: int, other_dies_at: int | None
) -> None:
    """Wherever the other one comes, and dies: what was made of the old settlement counts for nothing."""
    batch = sending.routed(4, good="/healthy/good", bad="/bad/crm", down=REFUSED)
    runtime = sending.runtime
    sending.push(batch)

    segment = str(runtime.ledger.files.list_for_batch(batch.batch_id, "outcome")[0].path)
    whole = runtime.store.get(segment)

    def other() -> None:
        runtime.store.delete(segment)
        if other_dies_at is not None:
            _at_create(other_dies_at, _die)
        with suppress(_Died):
            _repair(sending, batch)
        fault_points.install(None)
        if action is _finish:
            runtime.store.put(segment, whole)  # the other one can read it again

    if action is _repair:
        sending.settle(batch)
        runtime.store.delete(segment)
    _at_create(at, other)
    with suppress(ReconciliationError, SettledAgainError):
        action(sending, batch)
    fault_points.install(None)

    if runtime.ledger.batches.get(batch.batch_id).state != "committed":
        _repair(sending, batch)
        _finish(sending, batch)

    assert runtime.ledger.batches.get(batch.batch_id).state == "committed"
    assert audit(runtime).differences == ()
    settled = list(read_settled(runtime, batch.batch_id))
    dead = sum(row.status == "dead_lettered" for row in settled)
    waiting = sum(row.status in ("retry_scheduled", "unknown") for row in settled)
    assert len(settled) == 12
    assert len(list(dead_letters(runtime))) == dead
    assert sum(row.count for row in runtime.ledger.pending.list_for_batch(batch.batch_id)) == waiting


def test_rows_read_from_an_old_settlement_are_not_pending(sending: Sending) -> None:
    """A repair that comes while a settlement is read, and dies before it commits, is not in anybody's way."""
    batch = sending.routed(4, good="/healthy/good", bad="/bad/crm", down=REFUSED)
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)
    segment = str(runtime.ledger.files.list_for_batch(batch.batch_id, "outcome")[0].path)

    def other() -> None:
        runtime.store.delete(segment)
        _at_create(4, _die)  # the manifest: its own dead letters and pending deliveries are recorded
        with suppress(_Died):
            _repair(sending, batch)

    _at(1, "store.open", other)
    with pytest.raises(SettledAgainError):
        schedule_retries(runtime, batch.batch_id)
    _finish(sending, batch)

    assert runtime.ledger.batches.get(batch.batch_id).state == "committed"
    assert audit(runtime).differences == ()
