"""Runs the buffer stage: reads the ranges of a batch, checks each message and lands it in the archive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from eventbridge.delivery.segments import is_of_streaming_task, segments
from eventbridge.errors import EventBridgeError, EventError
from eventbridge.ledger.schemas import LearnedSchema
from eventbridge.model.batch import Batch, BatchFile, Range
from eventbridge.model.event_schema import TypeSample
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import FreshEvent, Partition
from eventbridge.pipeline.ingest import checking
from eventbridge.pipeline.ingest.sharing import LandedFile, Lander, LandingResult, LandJob, Part, log_of, parts_of
from eventbridge.pipeline.ingest.start_offsets import passes_over
from eventbridge.pipeline.ingest.taken_messages import Row, TakenMessages
from eventbridge.policy.field_use import rules_using
from eventbridge.policy.operational_event import schema_event
from eventbridge.policy.schema import learn, merge_samples
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.model import Source
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.runtime.identity import refuse_other_log
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.prepare_budget import PrepareBudget
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.protocol import LogSource, PagedLog, TrimmableLog
from eventbridge.store.columns import vector_of
from eventbridge.store.rule_sets import frozen_rules

log = logging.getLogger(__name__)


@instrumented("buffer")
def buffer(
    runtime: Runtime,
    batch_id: str,
    open_lander: Callable[[Bus], Lander | None] | None = None,
    check: checking.Check = checking.check_one_by_one,
    taken: TakenMessages | None = None,
) -> None:
    """Land the rest of a planned batch and move it to `buffered`; do nothing in any other state.

    Each finished sub-range is recorded, so a run that dies loses at most one sub-range. A message that is not a
    CloudEvent is kept as `malformed` with the reason, a message without a body as `tombstone`, and an event that the
    batch already has as `duplicate`. An offset that the log no longer holds is recorded as a gap. For a large batch,
    `open_lander` returns a lander, which lands parts in parallel. The stage lands the remaining parts itself and checks
    them with `check`. Messages that an open batch has `taken` are not read from the bus again, so they are landed even
    if the bus has dropped them.

    Raises InfrastructureError when the prepare budget is spent (run the stage again), and OffsetGapError if the batch
    was planned on another log.
    """
    batch = runtime.ledger.batches.get(batch_id)
    if batch.state != "planned" or batch.kind != "normal":
        return
    bus = runtime.rules_of(batch).buses[batch.bus]
    with closing(runtime.open_source(bus)) as source:
        refuse_other_log(runtime, batch.runner, bus, source)
        landing = Landing(runtime, batch, bus, source, check, taken or TakenMessages())
        landed = landing.run(open_lander)
    if landed:
        runtime.ledger.schemas.end_landing(batch_id, learned_schemas(runtime, batch, landing.samples))


@dataclass
class Landing:
    """One attempt to land a batch.

    It records sub-ranges in order, because each is checked against the ids of earlier ones.
    """

    runtime: Runtime
    batch: Batch
    bus: Bus
    source: LogSource
    check: checking.Check = checking.check_one_by_one
    taken: TakenMessages = field(default_factory=TakenMessages)
    seen: set[bytes] = field(default_factory=set)
    recorded: dict[str, BatchFile] = field(default_factory=dict)
    samples: dict[str, TypeSample] = field(default_factory=dict)  # of the messages that this attempt landed

    def __post_init__(self) -> None:
        """Set up how messages are read and checked."""
        settings = self.runtime.settings
        sampled = settings.schema_sample_events if self.bus.name != OPERATIONS_BUS.name else 0
        self._limits = checking.Limits(
            settings.buffer_range_events, settings.event_max_size, sampled, settings.schema_example_max_size
        )
        limits = self._limits if self.batch.state == "planned" else self._limits._replace(sample_events=0)
        fields = self.bus.source
        self._checking = checking.Checking(self.source, fields, limits, self.runtime.clock, self.check)
        self._fresh = FreshReading(self.source, fields, limits.event_max_size, self.taken)

    def run(self, open_lander: Callable[[Bus], Lander | None] | None = None) -> bool:
        """Land every range; return False if the batch is no longer `planned` because another process was faster."""
        budget = PrepareBudget(self.runtime, "buffer", self.batch.batch_id)
        self._read_recorded()
        if open_lander is not None:
            self._land_shared(open_lander, budget)
        for span in self.runtime.ledger.batches.ranges(self.batch.batch_id):
            position = self._landed_until(span, span.start)
            while position < span.end:
                budget.check()
                if not self._land(span.partition, position, span.end):
                    return False
                budget.progressed()
                position = self._landed_until(span, position)
        return True

    @property
    def bus_today(self) -> Bus:
        """The bus as the current rule files define it, in which an operator may have changed `offset_reset` to resolve
        a gap."""
        if self.bus.source.offset_reset == "earliest":
            return self.bus
        return self.runtime.rule_set().buses.get(self.bus.name, self.bus)

    def _land_shared(self, open_lander: Callable[[Bus], Lander | None], budget: PrepareBudget) -> None:
        """Land a large batch in parallel parts and record them, up to the first part that this process must land
        itself."""
        spans = [
            Part(span.partition, self._landed_until(span, span.start), span.end)
            for span in self.runtime.ledger.batches.ranges(self.batch.batch_id)
        ]
        batch, settings = self.batch, self.runtime.settings
        job = LandJob(
            batch_id=batch.batch_id,
            runner=batch.runner,
            bus=batch.bus,
            rule_set=batch.rule_set,
            planned_at=batch.planned_at,
            at=self.runtime.clock(),
            log=log_of(self.source),
            store_uri=settings.store_uri,
            **self._limits._asdict(),
        )
        parts = parts_of(spans, job)
        lander = open_lander(self.bus) if parts else None
        if lander is None:
            return
        with closing(_responses(lander, job, parts)) as responses:
            for part, response in zip(parts, responses, strict=False):
                if not self._take_over(part, response, budget):
                    return

    def _take_over(self, part: Part, response: LandingResult, budget: PrepareBudget) -> bool:
        """Record the files that a worker landed for a part; return False if this process must land the rest."""
        position = part.start
        for file, identities in response.files():
            budget.check()
            detail = file.detail
            if self.seen.isdisjoint(identities):
                taken = self._record(file, identities)
            else:  # this file marks ids as new that another part of the batch also has
                taken = self._land(detail.partition, detail.start, detail.end)
            if not taken or (position := self._landed_until(part, position)) != detail.end:
                return False
            budget.progressed()
        return position == part.end

    def _land(self, partition: Partition, start: int, limit: int) -> bool:
        """Land and record the next sub-range of a partition, or read the record of another process.

        Returns False if the batch is no longer `planned`.
        """
        found = self._check_file(partition, start, limit)
        batch = self.batch
        path = checking.write_file(self.runtime.store, batch.bus, batch.planned_at, batch.batch_id, found.rows)
        return self._record(LandedFile(path, found.detail, found.samples), found.identities)

    def _record(self, landed: LandedFile, identities: set[bytes]) -> bool:
        detail = landed.detail
        key = _key(detail.partition, detail.start)
        file = BatchFile(self.batch.batch_id, "buffer", key, landed.path, detail.read, detail)
        if self.runtime.ledger.files.record(file, while_state="planned"):
            self.seen |= identities
            self.recorded[file.key] = file
            self._add_samples(landed.samples)
            return True
        self._read_recorded()
        return file.key in self.recorded and self.runtime.ledger.batches.get(self.batch.batch_id).state == "planned"

    def _add_samples(self, samples: Mapping[str, TypeSample]) -> None:
        for name, sample in samples.items():
            if (before := self.samples.get(name)) is not None:
                self.samples[name] = merge_samples(before, sample)
            elif len(self.samples) < MAX_TYPES:
                self.samples[name] = sample

    def take(self, partition: Partition, start: int, limit: int) -> FreshRange | None:
        """Return the next events of a partition without landing them.

        If the bus has deleted the first of them, `offset_reset` decides. With `earliest`, the deleted ones are left
        out. With `latest`, the result is None, because listen must plan the gap. With `fail`, this method raises
        OffsetGapError.
        """
        if passes_over(self.bus_today, self.source, partition, start):
            return None
        return self._fresh.next_events(partition, start, limit, self.seen)

    def _check_file(self, partition: Partition, start: int, limit: int) -> checking.CheckedFile:
        if self.taken.covers(partition, start, limit):
            return self._checking.check_taken_file(self.taken, partition, start, limit, self.seen)
        passed_over = passes_over(self.bus_today, self.source, partition, start) and not self._has_response
        return self._checking.next_file(partition, start, limit, self.seen, is_gap=passed_over)

    @property
    def _has_response(self) -> bool:
        """Whether a streaming task that has since died sent a part of the batch, so that none of it may be passed
        over."""
        return any(map(is_of_streaming_task, segments(self.runtime, self.batch.batch_id)))

    def _read_recorded(self) -> None:
        """Read the sub-ranges recorded so far, and the identities of their valid events."""
        for file in self.runtime.ledger.files.list_for_batch(self.batch.batch_id, "buffer"):
            if file.key in self.recorded:
                continue
            self.recorded[file.key] = file
            if file.path is not None:
                self.seen |= checking.valid_identities(self.runtime.store, file.path)

    def _landed_until(self, span: Range | Part, position: int) -> int:
        """Return the end of the contiguous recorded sub-ranges that begin at `position`."""
        while (file := self.recorded.get(_key(span.partition, position))) is not None:
            assert isinstance(file.detail, LandedRange)  # only this stage uses such keys
            position = file.detail.end
        return position


def _responses(lander: Lander, job: LandJob, parts: list[Part]) -> Generator[LandingResult, None, None]:
    """Yield the results of a lander until its workers fail. This process then lands the rest, which shows the error in
    more detail.
    """
    try:
        yield from lander.land(job, parts)
    except EventBridgeError as error:
        log.warning("the task of batch %s lands the rest of it, because the workers failed: %s", job.batch_id, error)


def _key(partition: Partition, start: int) -> str:
    return f"{partition.topic}/{partition.broker}/{partition.partition_id:06d}/{start:020d}"


class FreshRange(NamedTuple):
    """The messages read from a partition up to offset `end` (excluded): their number, their bytes, and the new valid
    events."""

    end: int
    read: int
    size: int
    events: list[FreshEvent]


@dataclass(frozen=True)
class FreshReading:
    """Reads a few messages of a log at a time, in pages if the log has them, because pages are faster than columns for
    few messages.

    Messages of a log with its own retention are added to `taken`. A log that EventBridge trims keeps them until they
    are landed.
    """

    source: LogSource
    fields: Source
    max_bytes: int
    taken: TakenMessages
    _pages: PagedLog | None = field(init=False)
    _adds: bool = field(init=False)

    def __post_init__(self) -> None:
        """Set up how messages are read."""
        pages = self.source if self.fields.mapping is None and isinstance(self.source, PagedLog) else None
        object.__setattr__(self, "_pages", pages)
        object.__setattr__(self, "_adds", not isinstance(self.source, TrimmableLog))

    def next_events(self, partition: Partition, start: int, limit: int, seen: set[bytes]) -> FreshRange:
        """Return the new events of a partition up to offset `limit`, or about FILE_MAX_BYTES of them, and add their
        identities to `seen`."""
        rows, refused, end = self._read_next(partition, start, limit)
        events: list[FreshEvent] = []
        size = 0
        for number, (offset, published_at, body) in enumerate(rows):
            size += len(body or b"")
            if number in refused or body is None:
                continue
            try:
                event_id, source, _ = checking.names_of(body, self.max_bytes)
            except EventError:
                continue
            identity = checking.identity_of(source, event_id)
            if identity not in seen:
                seen.add(identity)
                events.append(FreshEvent(partition, offset, published_at, event_id, source, body))
        return FreshRange(end, len(rows), size, events)

    def _read_next(self, partition: Partition, start: int, limit: int) -> tuple[Sequence[Row], Mapping[int, str], int]:
        """Return messages, the reasons why some are not events (by row), and the offset up to which the log was
        read."""
        if self._pages is not None:
            return _rows_of(self._pages, partition, start, limit)
        return self._read_blocks(partition, start, limit)

    def _read_blocks(
        self, partition: Partition, start: int, limit: int
    ) -> tuple[Sequence[Row], Mapping[int, str], int]:
        blocks: list[pa.RecordBatch] = []
        size = 0
        with closing(checking.reading(self.source, partition, start, limit)) as messages:
            for block in messages:
                blocks.append(block)
                size += block["body"].nbytes
                if size >= checking.FILE_MAX_BYTES:
                    limit = int(block["offset"][-1].as_py()) + 1
                    break
        table, refused = checking.as_events(pa.Table.from_batches(blocks, schema=MESSAGES), partition, self.fields)
        offsets, published = (vector_of(table[name]).tolist() for name in ("offset", "published_at"))
        rows = list(zip(offsets, published, table["body"].to_pylist(), strict=True))
        if self._adds:
            self.taken.add(partition, start, limit, rows, refused)
        return rows, refused, limit


def _rows_of(
    source: PagedLog, partition: Partition, start: int, limit: int
) -> tuple[list[Row], Mapping[int, str], int]:
    rows: list[Row] = []
    size = 0
    with closing(source.pages(partition, start, limit)) as pages:
        for page in pages:
            rows += page
            size += sum(len(body) for _, _, body in page)
            if size >= checking.FILE_MAX_BYTES:
                return rows, {}, page[-1][0] + 1
    return rows, {}, limit


#: The maximum number of types to learn for a bus, so that types that contain ids do not fill the ledger.
MAX_TYPES: Final = 500


def learned_schemas(runtime: Runtime, batch: Batch, samples: Mapping[str, TypeSample]) -> list[LearnedSchema]:
    """Return the updated schemas of a batch's types, and the operational events about their changes.

    Once a bus has the maximum number of types, further types are ignored.
    """
    if not samples:
        return []
    known, types = runtime.ledger.schemas.list_for_types(batch.bus, samples)
    new = [name for name in samples if name not in known]
    passed_over = set(new[max(0, MAX_TYPES - types) :])
    found = [
        learn(known.get(name), batch.bus, name, sample, batch.planned_at)
        for name, sample in samples.items()
        if name not in passed_over
    ]
    rules = _rules_of_all(runtime, batch) if any(each.changes for each in found) else None
    return [
        LearnedSchema(each.schema, tuple(schema_event(change, rules_using(rules, change)) for change in each.changes))
        if rules is not None
        else LearnedSchema(each.schema, ())
        for each in found
    ]


def _rules_of_all(runtime: Runtime, batch: Batch) -> RuleSet:
    """Return the rules in force of all runners or, if they cannot be read, the batch's own rule set."""
    try:
        known = runtime.ledger.rules.get_in_force()
        if known is not None:
            return frozen_rules(runtime.store, known.rule_set)
    except EventBridgeError as error:
        log.warning("schema changes in batch %s name only rules of its own runner: %s", batch.batch_id, error)
    return runtime.rules_of(batch)
