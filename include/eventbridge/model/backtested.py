"""What a backtest finds in a part of the archive: counts by minute, samples, failures, and where two rules differ."""

from __future__ import annotations

from msgspec import Struct

#: Minutes since 1970 with how many events each: pairs, ascending.
Minutes = tuple[tuple[int, int], ...]


class EventSample(Struct, frozen=True, omit_defaults=True):
    """An archived event: where it lies, what names it, when it was landed (microseconds since 1970), its text.

    `cut`: the text is longer than what stands here.
    """

    file: str
    row: int
    event_id: str
    source: str
    arrived_at: int
    event: str
    cut: bool = False


class Output(Struct, frozen=True, omit_defaults=True):
    """What a target would receive of an event, or the `failure` that it has instead.

    A payload that is not UTF-8 stands here as base64; `cut`: it is longer than what stands here.
    """

    payload: str | None = None
    is_base64: bool = False
    content_type: str | None = None
    headers: str | None = None
    failure: str | None = None
    cut: bool = False


class OutputSample(Struct, frozen=True):
    """An event and what a target would receive of it."""

    of: EventSample
    output: Output


class Change(Struct, frozen=True):
    """An event of which a target would receive something else by B than by A."""

    of: EventSample
    a: Output
    b: Output


class Failure(Struct, frozen=True):
    """Why outputs cannot be rendered, of how many events, and the ids of the first ones; `text` "": others."""

    text: str
    count: int
    event_ids: tuple[str, ...]


class CandidateCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one candidate makes of events: by rule, or by `<rule>/<target>`.

    `candidate_events` are rows that the patterns of budgeted rules let through, by rule: pairs of file and row set.
    """

    matched: dict[str, Minutes] = {}
    samples: dict[str, tuple[OutputSample, ...]] = {}
    failures: dict[str, tuple[Failure, ...]] = {}
    candidate_events: dict[str, tuple[tuple[str, str], ...]] = {}


class TargetChanges(Struct, frozen=True):
    """Events that two rules match but of which one target would receive different outputs."""

    count: int
    samples: tuple[Change, ...]


class PairCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where two rules differ: events that both match, that only B does (`gained`), that only A does (`lost`)."""

    both: int = 0
    gained: int = 0
    lost: int = 0
    gained_samples: tuple[EventSample, ...] = ()
    lost_samples: tuple[EventSample, ...] = ()
    changed: dict[str, TargetChanges] = {}


class BacktestedSlice(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", tag="backtested"):
    """A part of the archive that was backtested: its valid events, by minute of their landing, and what was found.

    `candidates` are A or A and B, `pairs` in the order they were asked in.
    """

    landed: Minutes = ()
    candidates: tuple[CandidateCounts, ...] = ()
    pairs: tuple[PairCounts, ...] = ()
