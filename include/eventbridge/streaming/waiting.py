"""What waits for a streaming task: events, and unfinished batches."""

from __future__ import annotations

from contextlib import closing

from eventbridge.runtime.runtime import Runtime


def anything_waits(runtime: Runtime, runner: str) -> bool:
    """Return whether a streaming task has work: waiting events, an unfinished batch, or a group to register."""
    return runtime.ledger.unfinished_batch(runner) is not None or waiting_events(runtime, runner) != 0


def in_stages(runtime: Runtime, runner: str) -> bool:
    """Return whether later stages, or a streaming task that handed it over, are to deliver an unfinished batch."""
    batch = runtime.ledger.unfinished_batch(runner)
    return batch is not None and batch.state != "open" and batch.batch_id != runtime.ledger.last_open_batch(runner)


def waiting_events(runtime: Runtime, runner: str) -> int | None:
    """Return how many messages no committed batch has taken, None before the runner's first batch."""
    standing = runtime.ledger.committed_offsets(runner)
    if not standing:
        return None
    (bus,) = runtime.rule_set().for_runner(runner).buses.values()
    with closing(runtime.open_source(bus)) as source:
        return sum(
            end - standing.get(partition, source.earliest(partition)) for partition, end in source.ends().items()
        )
