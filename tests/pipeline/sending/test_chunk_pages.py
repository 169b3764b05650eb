"""A chunk of a batch is returned page by page, as the web page requests it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pipeline.delivering import Sending
from pipeline.streaming_tasks import a_streaming_task, until

from eventbridge import fault_points
from eventbridge.delivery.segments import is_of_streaming_task, segments
from eventbridge.views import chunks


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Count the files of the store that the block opens."""
    found: list[str] = []
    fault_points.install(lambda point: found.append(point) if point == "store.open" else None)
    try:
        yield found
    finally:
        fault_points.install(None)


def test_a_page_of_a_batch_reads_some_of_its_segments(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages together have every attempt once, those that were not delivered before all others."""
    runtime = sending.begin(settings={"segment_responses": 1}, crm="/healthy/crm", erp="/status/400")
    with a_streaming_task(sending):
        for number in range(1, 7):
            sending.publish(1)
            until(lambda: len(sending.requests()) == 2 * number)  # noqa: B023 - asked for at once
            until(
                lambda: (
                    len(runtime.ledger.files.list_for_batch(runtime.ledger.batches.find()[0].batch_id, "outcome"))
                    >= number  # noqa: B023
                )
            )
    (batch,) = runtime.ledger.batches.find()
    (chunk,) = runtime.ledger.chunks.list_for_batch(batch.batch_id)
    files = segments(runtime, batch.batch_id, [chunk.chunk_id])
    of_deliveries = {piece.file for piece in chunk.pieces}
    assert len([file for file in files if is_of_streaming_task(file)]) > 5

    monkeypatch.setattr(chunks, "MAX_SEGMENTS", 2)
    pages: list[chunks.ChunkAccount] = []
    while not pages or pages[-1].cursor is not None:
        with opened_files() as opened:
            pages.append(
                chunks.chunk_account(runtime, batch.batch_id, chunk.chunk_id, pages[-1].cursor if pages else None)
            )
        assert len(opened) <= 2 + len(of_deliveries)

    reported = [each for page in pages for each in page.attempts]
    assert len({each.delivery_id for each in reported}) == len(reported) == 12
    outcomes = [each.row["outcome"] == "delivered" for each in reported]
    assert outcomes == sorted(outcomes)
    assert [page.continues for page in pages] == [False, *[True] * (len(pages) - 1)]
