"""How large the chunks of a target may be."""

from __future__ import annotations

from eventbridge.rules.types import BATCHED_CHUNK, BULK_CHUNK, SMALL_CHUNK, ChunkSize, ChunkSizes
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.http.fields import BatchLimits, HttpFields


def test_a_file_takes_twenty_times_what_a_request_each_does() -> None:
    """Http stays within what a push budget can do, 250 a second; a file takes 100,000 deliveries and 128 MiB."""
    sizes = ChunkSizes()

    assert sizes.size_of(HttpFields(name="crm")) == SMALL_CHUNK == (5_000, 8 << 20)
    assert sizes.size_of(FileFields(name="archive")) == BULK_CHUNK == (100_000, 128 << 20)
    assert sizes.size_of(None) == SMALL_CHUNK


def test_batch_requests_make_larger_chunks() -> None:
    """As many requests as before, with more in each, as far as memory allows."""
    sizes = ChunkSizes()

    assert sizes.size_of(HttpFields(name="crm", batch=BatchLimits(count=3))) == (15_000, BATCHED_CHUNK.size)
    assert sizes.size_of(HttpFields(name="crm", batch=BatchLimits(count=100))) == BATCHED_CHUNK


def test_the_settings_speak_for_every_target() -> None:
    """What the operator sets counts whatever the type says, above and below."""
    sizes = ChunkSizes(40_000, 1 << 20)

    assert sizes.size_of(HttpFields(name="crm")) == (40_000, 1 << 20)
    assert sizes.size_of(FileFields(name="archive")) == (40_000, 1 << 20)


def test_a_pending_row_is_never_larger_than_any_target_can_take() -> None:
    """Larger chunks do not make larger pending rows; smaller ones do make smaller ones."""
    assert ChunkSizes().small == SMALL_CHUNK
    assert ChunkSizes(40_000, 1 << 20).small == ChunkSize(5_000, 1 << 20)
    assert ChunkSizes(7, 1 << 30).small == ChunkSize(7, 8 << 20)
