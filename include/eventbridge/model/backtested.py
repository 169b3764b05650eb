"""Defines what a backtest finds in a part of the archive: counts by minute, samples, failures, rule differences."""

from __future__ import annotations

from msgspec import Struct

#: Pairs of a minute since 1970 and its number of events, ascending.
Minutes = tuple[tuple[int, int], ...]


class EventSample(Struct, frozen=True, omit_defaults=True):
    """An archived event: its file and row, its id and source, when it was landed (microseconds since 1970), and its
    JSON.

    `cut` is True if the JSON is truncated.
    """

    file: str
    row: int
    event_id: str
    source: str
    arrived_at: int
    event: str
    cut: bool = False


class Output(Struct, frozen=True, omit_defaults=True):
    """The payload that a target would receive for an event, or the `failure` instead.

    A payload that is not UTF-8 is shown as base64; `cut` is True if the payload is truncated.
    """

    payload: str | None = None
    is_base64: bool = False
    content_type: str | None = None
    headers: str | None = None
    failure: str | None = None
    cut: bool = False


class OutputSample(Struct, frozen=True):
    """An event and the output that a target would receive for it."""

    of: EventSample
    output: Output


class Change(Struct, frozen=True):
    """An event for which a target would receive a different output from B than from A."""

    of: EventSample
    a: Output
    b: Output


class Failure(Struct, frozen=True):
    """A reason why outputs cannot be rendered, the number of events that it applies to, and the ids of the first ones.
    An empty `text` stands for all other failures.
    """

    text: str
    count: int
    event_ids: tuple[str, ...]


class CandidateCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of one candidate. `matched` is by rule; `samples` and `failures` are by `<rule>/<target>`.

    `candidate_events` has, for each rule whose share is routed separately, the rows that its pattern matches, as pairs
    of file and row set.
    """

    matched: dict[str, Minutes] = {}
    samples: dict[str, tuple[OutputSample, ...]] = {}
    failures: dict[str, tuple[Failure, ...]] = {}
    candidate_events: dict[str, tuple[tuple[str, str], ...]] = {}


class TargetChanges(Struct, frozen=True):
    """Events that two rules match, but for which a target would receive different outputs."""

    count: int
    samples: tuple[Change, ...]


class PairCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Differences between two rules: events that both match, that only B matches (`gained`), or only A (`lost`)."""

    both: int = 0
    gained: int = 0
    lost: int = 0
    gained_samples: tuple[EventSample, ...] = ()
    lost_samples: tuple[EventSample, ...] = ()
    changed: dict[str, TargetChanges] = {}


class BacktestedSlice(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", tag="backtested"):
    """A backtested part of the archive: the number of its valid events, by minute of landing, and the findings.

    `candidates` holds A, or A and B; `pairs` are in the order of the request.
    """

    landed: Minutes = ()
    candidates: tuple[CandidateCounts, ...] = ()
    pairs: tuple[PairCounts, ...] = ()
