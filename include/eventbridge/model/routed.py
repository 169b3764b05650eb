"""What route records of a batch: slices, budgeted rules' shares, split slices, events that cannot be routed."""

from __future__ import annotations

from msgspec import Struct, field

from eventbridge.event.ids import Fingerprint


class RoutedPiece(Struct, frozen=True, array_like=True, gc=False):
    """Rows of a delivery file, all of one rule and target, with where they want to go; never larger than a chunk.

    The file is that of the record that holds the piece. A `chunk.Piece` is what becomes of it: rows that a chunk has,
    with their file, and with what earlier batches know of them.
    """

    pool: str
    weight: int
    rule: str
    target: str
    rows: str  # a row set
    count: int
    size: int  # payload bytes
    shard: int | None = None  # of an ordered target
    not_before: int | None = None  # the earliest time that its rows wait for, in microseconds since 1970


class Routed(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record"):
    """What route says of the deliveries of one file; keys are `<rule>/<target>`."""

    matched: dict[str, Fingerprint] = {}  # of all its deliveries, those that failed included
    failed: dict[str, int] = {}  # how many could not be rendered
    failed_rows: str = ""  # these, as a row set; they are in no piece
    pieces: tuple[RoutedPiece, ...] = ()
    cpu: int = 0  # microseconds that it took


class RoutedSlice(Routed, frozen=True, kw_only=True, omit_defaults=True, tag="slice"):
    """A slice that was routed: rows `row_from` (included) to `row_to` (excluded) of the buffer file `file`."""

    file: str
    row_from: int
    row_to: int
    rows_in: int = 0  # valid rows read
    reference_matched: int = 0  # events, and pairs of event and rule, that the reference matcher decided
    reference_rendered: int = 0  # deliveries that compiled code handed back to their renderers
    clears: int = 0  # how often the matcher's table of classes was full and dropped
    candidate_events: dict[str, str] = field(
        default_factory=dict
    )  # per budgeted rule, the rows of the buffer file that its pattern let through


class RoutedShare(Routed, frozen=True, kw_only=True, omit_defaults=True, tag="share"):
    """A budgeted rule's share of a batch, as far as it was routed; pairs are buffer file and row set."""

    rule: str
    done: tuple[tuple[str, str], ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()  # those of `done` that `where` does not admit
    left: tuple[tuple[str, str], ...] = ()  # becomes a deferred match
    reason: str = ""  # why some are left
    rendered: int = 0  # events rendered for a target at least, or rejected
    failure_reasons: dict[str, str] = {}  # rows that failed otherwise than as transform_failed, by reason
    error: str = ""  # its rule is to be put on hold, and why


class SplitSlice(Struct, frozen=True, tag_field="record", tag="split"):
    """A slice that is routed as its parts: pairs of first row (included) and last (excluded)."""

    parts: tuple[tuple[int, int], ...]


class UnroutableEvent(Struct, frozen=True, tag_field="record", tag="unroutable"):
    """The one event of a slice that cannot be routed: it becomes a dead letter route_failed."""

    file: str  # buffer file
    row: int
    error: str
