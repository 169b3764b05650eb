"""A batch follows the target duration according to how long most deliveries of the last batch took."""

from __future__ import annotations

from pathlib import Path

from pipeline.delivering import RUNNER, Sending

from eventbridge.pipeline.ingest.batch_size import events_in_time
from eventbridge.pipeline.ingest.listen import listen


def taken(sending: Sending) -> int:
    """Plan the next batch, and return how many events it takes."""
    batch_id = listen(sending.runtime, RUNNER)
    assert batch_id is not None
    return sum(each.end - each.start for each in sending.runtime.ledger.batches.ranges(batch_id))


def test_a_batch_that_took_too_long_is_followed_by_a_smaller_one(sending: Sending, tmp_path: Path) -> None:
    """By half at most, however long it took."""
    log = f"{{type: file, path: '{tmp_path / 'log.jsonl'}'}}"
    sending.begin(5_000, settings={"batch_max_events": 2_400, "batch_target_duration": 0.001}, log=log)
    sending.deliver_batch()

    assert taken(sending) == 1_200


def test_a_batch_that_was_quick_is_followed_by_a_larger_one(sending: Sending, tmp_path: Path) -> None:
    """If it was full: four times as many, up to the most that settings allow; one that was not says nothing."""
    log = f"{{type: file, path: '{tmp_path / 'log.jsonl'}'}}"
    sending.begin(1_200, settings={"batch_max_events": 500, "batch_target_duration": 600}, log=log)
    sending.deliver_batch()
    assert events_in_time(sending.runtime, RUNNER) == 2_000
    sending.site.reopen(batch_max_events=900, batch_target_duration=600)

    assert taken(sending) == 700


def test_one_slow_target_of_many_shrinks_no_batch(sending: Sending, tmp_path: Path) -> None:
    """Of six targets one responds after seconds: most was delivered long before."""
    logs = {f"log-{n}": f"{{type: file, path: '{tmp_path / f'{n}.jsonl'}'}}" for n in range(5)}
    sending.begin(8, settings={"batch_max_events": 6, "batch_target_duration": 600}, late="/slow/late", **logs)
    sending.deliver_batch()
    (batch,) = sending.runtime.ledger.batches.find()
    assert batch.committed_at is not None

    assert events_in_time(sending.runtime, RUNNER) == 24
