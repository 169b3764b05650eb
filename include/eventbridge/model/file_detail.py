"""Defines what a stage records about a file besides its path and its number of rows, as JSON for the ledger and for
Spark's results."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from eventbridge.event.ids import Fingerprint
from eventbridge.model.partition import LastMessage, Partition


class LandedRange(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", tag="range"):
    """Offsets `start` (included) to `end` (excluded) of one partition in one buffer file. Each was read or is a gap."""

    partition: Partition
    start: int
    end: int
    read: int = 0  # valid + duplicate + malformed + tombstone
    valid: int = 0
    duplicate: int = 0
    malformed: int = 0
    tombstone: int = 0
    size: int = 0  # body bytes
    gaps: tuple[tuple[int, int], ...] = ()  # offsets missing from the log: start (included), end (excluded)
    last: LastMessage | None = None


class RoutedPiece(Struct, frozen=True, array_like=True, gc=False):
    """Rows of a delivery file, all of one rule and target, with their pool and weight. They fit into one chunk,
    unless there is only one row.

    The record that contains the piece names its file. The piece becomes a `chunk.Piece`: rows of a chunk, with their
    file and their history in earlier batches.
    """

    pool: str
    weight: int
    rule: str
    target: str
    rows: str  # a row set
    count: int
    size: int  # payload bytes
    shard: int | None = None  # None unless the target is ordered
    not_before: int | None = None  # the earliest time at which one of its rows may be sent, in microseconds since 1970


class Routed(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record"):
    """The record that the route stage makes of the deliveries of one file; keys are `<rule>/<target>`."""

    matched: dict[str, Fingerprint] = {}  # all its deliveries, including failed ones
    failed: dict[str, int] = {}  # how many could not be rendered
    failed_rows: str = ""  # the failed rows, as a row set; they are in no piece
    pieces: tuple[RoutedPiece, ...] = ()
    cpu: int = 0  # CPU time in microseconds


class RoutedSlice(Routed, frozen=True, kw_only=True, omit_defaults=True, tag="slice"):
    """A routed slice: rows `row_from` (included) to `row_to` (excluded) of the buffer file `file`."""

    file: str
    row_from: int
    row_to: int
    rows_in: int = 0  # valid rows read
    reference_matched: int = 0  # events, and pairs of event and rule, that the reference matcher decided
    reference_rendered: int = 0  # deliveries that compiled code left to the reference renderer
    clears: int = 0  # how often the matcher dropped its table of classes because it was full
    # by rule that is budgeted or routed later, the rows of the buffer file that its pattern matches
    candidate_events: dict[str, str] = field(default_factory=dict)


class RoutedShare(Routed, frozen=True, kw_only=True, omit_defaults=True, tag="share"):
    """The result of routing a rule's share of a batch. Each pair is a buffer file and a row set."""

    rule: str
    done: tuple[tuple[str, str], ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()  # those of `done` that `where` does not admit
    left: tuple[tuple[str, str], ...] = ()  # becomes a deferred match
    reason: str = ""  # why some events were not evaluated
    rendered: int = 0  # events rendered for at least one target, or rejected
    failure_reasons: dict[str, str] = {}  # by reason, rows that failed for a reason other than transform_failed
    error: str = ""  # why the rule is put on hold


class SplitSlice(Struct, frozen=True, tag_field="record", tag="split"):
    """A slice that is routed in parts: pairs of start row (included) and end row (excluded)."""

    parts: tuple[tuple[int, int], ...]


class UnroutableEvent(Struct, frozen=True, tag_field="record", tag="unroutable"):
    """The single event of a slice that cannot be routed; it becomes a dead letter with the reason `route_failed`."""

    file: str  # buffer file
    row: int
    error: str


class Spent(Struct, frozen=True, tag_field="record", tag="spent"):
    """The CPU time, in microseconds, that a streaming task spent on outcomes, and their number by `<rule>/<target>`."""

    cpu: int
    outcomes: dict[str, int]


#: The details of a file besides its path and its number of rows; None if it has none. In the JSON, the `record` member
#: names the type.
FileDetail = LandedRange | RoutedSlice | RoutedShare | SplitSlice | UnroutableEvent | Spent | None

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[FileDetail] = msgspec.json.Decoder(FileDetail)


def encode_detail(detail: FileDetail) -> str:
    """Return a detail as JSON."""
    return _ENCODER.encode(detail).decode()


def decode_detail(text: str) -> FileDetail:
    """Read the JSON that `encode_detail` wrote. Raises msgspec.DecodeError if it is anything else."""
    return _DECODER.decode(text)
