"""How many events the next batch may take, estimated from the fan-out of the last batches; called by listen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eventbridge.model.batch import Batch
from eventbridge.model.file_detail import LandedRange
from eventbridge.policy.batch_size import FanOut, Part, events_handed_out, part_of_chunks
from eventbridge.policy.chunking import PoolSlots, chunks_for
from eventbridge.rules import RuleSet
from eventbridge.rules.model import PRIORITY_POOLS
from eventbridge.runtime.runtime import Runtime

#: How many batches are examined, until they have enough events: a few may have matched everything, or nothing.
_MOST_BATCHES = 10
_ENOUGH_EVENTS = 1_000


def events_to_hand_out(
    runtime: Runtime, runner: str, rules: RuleSet, pools: Mapping[str, PoolSlots] | None
) -> int | None:
    """Return how many events a batch may take so that all its deliveries get a chunk; None if that cannot be estimated
    yet.

    A rule's own pool does not bound the batch: deliveries beyond its capacity go to the slow lane, where they cost the
    other rules nothing. A shared pool without a free slot counts as having one; a closed pool holds its deliveries.
    """
    events = 0
    parts: list[Part] = []
    for batch in runtime.ledger.batches(limit=_MOST_BATCHES, runner=runner):
        if batch.kind == "normal" and batch.state == "committed" and events < _ENOUGH_EVENTS:
            landed = [file.detail for file in runtime.ledger.files(batch.batch_id, "buffer")]
            events += sum(each.read for each in landed if isinstance(each, LandedRange))
            parts += _parts(runtime, batch, rules)
    most = runtime.settings.batch_max_chunks
    capacity = {
        name: chunks_for(pool._replace(free=max(1, pool.free)), most)
        for name, pool in (pools or {}).items()
        if name in PRIORITY_POOLS and pool.slots
    }
    return events_handed_out(FanOut.of(events, parts), capacity, most, runtime.settings.batch_max_deliveries)


def _parts(runtime: Runtime, batch: Batch, rules: RuleSet) -> Iterator[Part]:
    """Yield the deliveries that a batch handed out or lacked capacity for, except those of degraded targets."""
    for total in runtime.ledger.chunk_totals(batch.batch_id):
        yield part_of_chunks(total, runtime.chunk_sizes.small)
    withheld = runtime.ledger.withheld_pieces(batch.batch_id)
    statuses = runtime.ledger.target_statuses() if withheld else {}
    for pool, piece in withheld:
        status, rule = statuses.get((piece.rule, piece.target)), rules.rules.get(piece.rule)
        target = rule.targets.get(piece.target) if rule is not None else None
        if target is not None and (status is None or status.state == "ok"):
            most = runtime.chunk_sizes.of(target)
            yield Part(pool, piece.count, max(piece.count / most.deliveries, piece.size / most.size))
