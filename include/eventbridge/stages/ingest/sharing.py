"""Landing of one batch by several workers, a part of a partition each: what they are asked and what they respond with.

The stage records what they landed, part by part in the order of the batch, as it records what it lands by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, json

from eventbridge.model.event_schema import TypeSample
from eventbridge.model.landed import LandedRange
from eventbridge.model.partition import Partition
from eventbridge.rule import Bus
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.ingest.checked import IDENTITY_BYTES, Check, check_one_by_one
from eventbridge.stages.ingest.checking import Checking, Limits, write_file
from eventbridge.store.protocol import Store

#: Batches of at least so many offsets are shared out: with fewer, asking workers takes as long as they save.
LARGE_EVENTS: Final = 150_000

#: A part is of so many files: what a worker responds with at a time, after which the stage records it.
_FILES_PER_PART: Final = 2


class LandJob(Struct, frozen=True, kw_only=True):
    """What all parts of one batch share; `at` is when its messages arrive, by the ledger's clock.

    `log` says by topic which log it is, as the stage sees it: a worker whose connection leads elsewhere lands nothing.
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
        """Return what bounds a file."""
        return Limits(self.file_events, self.event_max_size, self.sample_events, self.example_bytes)


class Part(Struct, frozen=True):
    """Offsets `start` (included) to `end` (excluded) of a partition, for one worker."""

    partition: Partition
    start: int
    end: int


class LandJobParts(Struct, frozen=True):
    """A job and its parts, as they travel to the workers."""

    job: LandJob
    parts: tuple[Part, ...]

    def to_json(self) -> bytes:
        """Return both as JSON."""
        return json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> LandJobParts:
        """Read what `to_json` wrote; raises msgspec.DecodeError for anything else."""
        return json.decode(text, type=cls)


class LandedFile(Struct, frozen=True):
    """A file that a worker wrote (None: of a gap), what is to be recorded of it, what a sample of its events has."""

    path: str | None
    detail: LandedRange
    samples: dict[str, TypeSample] = {}


class LandedFiles(Struct, frozen=True):
    """The files of a part in the order of its offsets, up to its end unless the stage has to go on by itself."""

    files: tuple[LandedFile, ...]

    def to_json(self) -> bytes:
        """Return them as JSON."""
        return json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> LandedFiles:
        """Read what `to_json` wrote; raises msgspec.DecodeError for anything else."""
        return json.decode(text, type=cls)


class LandingResult(NamedTuple):
    """What a worker landed of a part, and the identities of its valid events, one after the other, by file."""

    landed: LandedFiles
    identities: bytes

    def by_file(self) -> Iterator[tuple[LandedFile, set[bytes]]]:
        """Yield each file with the identities of its valid events."""
        place = 0
        for file in self.landed.files:
            end = place + file.detail.valid * IDENTITY_BYTES
            yield file, {self.identities[at : at + IDENTITY_BYTES] for at in range(place, end, IDENTITY_BYTES)}
            place = end


class Lander(Protocol):
    """Lands parts of a batch, several at a time."""

    def land(self, job: LandJob, parts: Sequence[Part]) -> Iterator[LandingResult]:
        """Yield a response for each part, in their order; raises EventBridgeError where workers fail."""


def parts_of(spans: Sequence[Part], job: LandJob) -> list[Part]:
    """Return what workers are given of ranges that are not landed yet; nothing if they are small."""
    if sum(span.end - span.start for span in spans) < LARGE_EVENTS:
        return []
    size = job.file_events * _FILES_PER_PART
    return [
        Part(span.partition, start, min(start + size, span.end))
        for span in spans
        for start in range(span.start, span.end, size)
    ]


def log_of(source: LogSource) -> dict[str, str]:
    """Return what tells a log from others: the identities of its topics, else where it lies."""
    return dict(source.identities()) or {"": source.uri}


def land_part(
    store: Store, source: LogSource, bus: Bus, job: LandJob, part: Part, check: Check = check_one_by_one
) -> LandingResult:
    """Land a part file by file, as far as nothing is to be decided: for what a log dropped a bus may want to fail.

    Events that the batch has in other parts too are valid here; the stage, which knows all parts, finds them.
    """
    checking = Checking(source, bus.source.mapping, job.limits, lambda: job.at, check)
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
