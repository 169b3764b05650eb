"""Lands a batch with several workers, each of which lands parts of partitions, and defines the jobs and results of the
workers.

The stage records the results part by part in the order of the batch, like the parts that it lands itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, json

from eventbridge.model.event_schema import TypeSample
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest.checking import IDENTITY_BYTES, Check, Checking, Limits, check_one_by_one, write_file
from eventbridge.rules import Bus
from eventbridge.sources.protocol import LogSource
from eventbridge.store.protocol import Store

#: The minimum number of offsets in a batch that workers share. With fewer offsets, the round trip to the workers takes
#: as much time as it saves.
LARGE_EVENTS: Final = 150_000

#: The number of files in a part. A worker returns a part as one result.
_FILES_PER_PART: Final = 2


class LandJob(Struct, frozen=True, kw_only=True):
    """The settings that all parts of a batch share; `at` is when its messages arrived, by the ledger's clock.

    `log` is the identity of the log by topic, as the stage sees it. A worker whose connection leads to another log
    lands nothing.
    """

    batch_id: str
    runner: str
    bus: str
    rule_set: str  # hash
    planned_at: datetime
    at: datetime
    log: dict[str, str]
    store_uri: str
    file_events: int
    event_max_size: int
    sample_events: int = 0
    example_bytes: int = 0
    old: bool = False

    @property
    def limits(self) -> Limits:
        """Return the limits of a file."""
        return Limits(self.file_events, self.event_max_size, self.sample_events, self.example_bytes)


class Part(Struct, frozen=True):
    """Offsets `start` (included) to `end` (excluded) of a partition, for one worker."""

    partition: Partition
    start: int
    end: int


class LandJobParts(Struct, frozen=True):
    """A job and its parts, as they are sent to the workers."""

    job: LandJob
    parts: tuple[Part, ...]

    def to_json(self) -> bytes:
        """Return the job and its parts as JSON bytes."""
        return json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> LandJobParts:
        """Read what `to_json` wrote. Raises msgspec.DecodeError for anything else."""
        return json.decode(text, type=cls)


class LandedFile(Struct, frozen=True):
    """A file that a worker wrote, its record, and a sample of its events by type; `path` is None for a gap."""

    path: str | None
    detail: LandedRange
    samples: dict[str, TypeSample] = {}


class LandedFiles(Struct, frozen=True):
    """The files of a part in order of their offsets, up to the end of the part or to where the stage must continue."""

    files: tuple[LandedFile, ...]

    def to_json(self) -> bytes:
        """Return the files as JSON."""
        return json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> LandedFiles:
        """Read what `to_json` wrote. Raises msgspec.DecodeError for anything else."""
        return json.decode(text, type=cls)


class LandingResult(NamedTuple):
    """The files that a worker landed for a part, and the identities of their valid events, file by file."""

    landed: LandedFiles
    identities: bytes

    def files(self) -> Iterator[tuple[LandedFile, set[bytes]]]:
        """Yield each file with the identities of its valid events."""
        begin = 0
        for file in self.landed.files:
            end = begin + file.detail.valid * IDENTITY_BYTES
            yield file, {self.identities[at : at + IDENTITY_BYTES] for at in range(begin, end, IDENTITY_BYTES)}
            begin = end


class Lander(Protocol):
    """Lands several parts of a batch at a time."""

    def land(self, job: LandJob, parts: Sequence[Part]) -> Iterator[LandingResult]:
        """Yield a result for each part, in order; raise EventBridgeError if workers fail."""


def parts_of(spans: Sequence[Part], job: LandJob) -> list[Part]:
    """Divide ranges that are not landed yet into parts for workers; return no parts if the ranges are small."""
    if sum(span.end - span.start for span in spans) < LARGE_EVENTS:
        return []
    size = job.file_events * _FILES_PER_PART
    return [
        Part(span.partition, start, min(start + size, span.end))
        for span in spans
        for start in range(span.start, span.end, size)
    ]


def log_of(source: LogSource) -> dict[str, str]:
    """Return the identity of a log: the identities of its topics if they have any, else its URI."""
    return dict(source.identities()) or {"": source.uri}


def land_part(
    store: Store, source: LogSource, bus: Bus, job: LandJob, part: Part, check: Check = check_one_by_one
) -> LandingResult:
    """Land a part file by file, up to the first deleted message (unless `offset_reset` is `earliest`), about which only
    the stage may decide.

    Events that another part of the batch also has count as valid; the stage, which has all parts, finds the duplicates.
    """
    checking = Checking(source, bus.source, job.limits, lambda: job.at, check)
    seen: set[bytes] = set()
    files: list[LandedFile] = []
    identities: list[bytes] = []
    position = part.start if log_of(source).items() <= job.log.items() else part.end
    while position < part.end:
        if bus.source.offset_reset != "earliest" and source.earliest(part.partition) > position:
            break
        found = checking.next_file(part.partition, position, part.end, seen)
        path = write_file(store, job.bus, job.planned_at, job.batch_id, found.rows)
        files.append(LandedFile(path, found.detail, found.samples))
        identities += found.identities
        seen |= found.identities
        position = found.detail.end
    return LandingResult(LandedFiles(tuple(files)), b"".join(identities))
