"""The size of the measurements, and the files of rules and events that all measured processes read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.match import rules
from benchmarks.match.events import SIZES, Size, make_events
from benchmarks.match.hard_events import make_array_events, make_key_events, make_object_events, make_order_events
from benchmarks.match.hard_rules import HARD, many_keys
from benchmarks.match.kernel import write_rules

__all__ = ["KINDS", "QUICK", "SIZES", "WARM", "Scale", "Workload"]

KINDS: Final = ("wildcard", "numeric-range", "anything-but")
"""Rule sets of one kind of condition only."""

WARM: Final = 0
"""The number of the round that is not counted. Events of each round are new to every matcher of ours."""

CHANGED: Final = 100
"""Rules that are others in the changed rule set."""


OBJECTS: Final = 20_000
"""Elements of the array of objects."""


@dataclass(frozen=True)
class Scale:
    """How much is measured; the defaults are for the real table."""

    rounds: int = 3
    rules: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    rules_of_one_kind: tuple[int, ...] = (1_000, 10_000)
    events: Mapping[Size, int] = field(default_factory=lambda: {519: 200_000, 4096: 30_000})  # a file; two a round
    udf_events: Mapping[int, int] = field(
        default_factory=lambda: {1: 100_000, 10: 50_000, 100: 20_000, 1_000: 4_000, 10_000: 500}
    )  # a file; by rules
    array_events: int = 400
    key_events: int = 100_000
    order_events: int = 4_000
    object_events: int = 2
    route_events: int = 160_000
    route_events_of_many: int = 30_000
    profiled_events: int = 80_000
    warm_seconds: float = 1.5
    ruler_seconds: float = 1.0
    kernel_seconds: float = 0.6  # at most, each event once
    fresh_events: int = 2_000_000
    checked_pairs: int = 100_000
    checked_events: int = 1_000


QUICK: Final = Scale(
    rounds=1,
    rules=(1, 100, 1_000),
    rules_of_one_kind=(1_000,),
    events={519: 20_000, 4096: 4_000},
    udf_events={1: 10_000, 100: 4_000, 1_000: 400},
    array_events=20,
    key_events=4_000,
    order_events=200,
    object_events=1,
    route_events=8_000,
    route_events_of_many=4_000,
    profiled_events=8_000,
    warm_seconds=0.5,
    ruler_seconds=0.3,
    kernel_seconds=0.2,
    fresh_events=100_000,
    checked_pairs=20_000,
    checked_events=100,
)


class Workload:
    """Rules and events as files in a folder, made as they are asked for."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.folder = folder
        self.scale = scale

    def rules(self, name: str, count: int) -> Path:
        """Return the file of a rule set: `mixed`, a kind of condition, or one of those made to hurt."""
        file = self.folder / f"{name}-{count}.rules"
        if not file.exists():
            write_rules(file, _made(name, count))
        return file

    def changed_rules(self, count: int) -> Path:
        """Return the file of the mixed set with its first `CHANGED` rules replaced."""
        file = self.folder / f"changed-{count}.rules"
        if not file.exists():
            write_rules(file, [*rules.mixed(CHANGED, seed=2), *rules.mixed(count)[CHANGED:]])
        return file

    def events(self, size: Size, round_: int) -> list[Path]:
        """Return the two files of a round."""
        return [self._events(f"{size}-{round_}-{part}", size, 2 * round_ + part) for part in (0, 1)]

    def heads(self, size: Size, round_: int, count: int) -> list[Path]:
        """Return two files of the first events of a round's."""
        files = self.events(size, round_)
        if count >= self.scale.events[size]:
            return files
        return [self._head(file, count) for file in files]

    def lines(self, size: Size, count: int) -> Path:
        """Return a text file of the first events of the round that is not counted, one a line."""
        file = self.folder / f"{size}.lines"
        texts = pq.read_table(self.events(size, WARM)[0])["body"][:count].to_pylist()
        file.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        return file

    def fresh_sources(self, round_: int) -> Path:
        """Return a file of events of which no two have the same source."""
        file = self.folder / f"sources-{round_}.parquet"
        return self._write(file, make_events(self.scale.events[519] // 2, block=round_, fresh_sources=True))

    def hard(self, name: str, round_: int) -> Path:
        """Return a file of events made to hurt: `arrays`, `keys-N`, `orders` or `objects`."""
        scale = self.scale
        if name == "arrays":
            events = make_array_events(scale.array_events, 10_000, block=round_)
        elif name == "orders":
            events = make_order_events(scale.order_events, block=round_)
        elif name == "objects":
            events = make_object_events(scale.object_events, OBJECTS, block=round_)
        else:
            events = make_key_events(scale.key_events, int(name.removeprefix("keys-")), block=round_)
        return self._write(self.folder / f"{name}-{round_}.parquet", events)

    def profiled(self, round_: int) -> Path:
        """Return a file of events for taking the time apart: no other matcher gets them, so none knows them."""
        events = make_events(self.scale.profiled_events, block=1_000 + round_)
        return self._write(self.folder / f"profiled-{round_}.parquet", events)

    def routed_events(self, rule_set: str) -> int:
        """Return how many events are routed as a whole with the rules of a name."""
        return self.scale.route_events if rule_set == "mixed" else self.scale.route_events_of_many

    def fresh(self, first: int, count: int) -> Path:
        """Return a file of events that no other file has; there is one such file at a time."""
        return self._write(self.folder / "fresh.parquet", make_events(count, block=1_000_000 + first))

    def end_round(self, round_: int) -> None:
        """Remove the events of a round."""
        for pattern in (f"*-{round_}.parquet", f"*-{round_}-*.parquet"):
            for file in self.folder.glob(pattern):
                file.unlink()

    def _events(self, name: str, size: Size, block: int) -> Path:
        file = self.folder / f"events-{name}.parquet"
        return file if file.exists() else self._write(file, make_events(self.scale.events[size], size, block=block))

    def _head(self, file: Path, count: int) -> Path:
        head = file.with_name(f"{file.stem}-head-{count}.parquet")
        return head if head.exists() else self._write(head, pq.read_table(file)["body"][:count])

    def _write(self, file: Path, events: pa.Array | pa.ChunkedArray) -> Path:
        # As the store writes its buffer files, but for the other columns.
        pq.write_table(pa.table({"body": events}), file, compression="zstd", use_dictionary=False, row_group_size=2_000)
        return file


def _made(name: str, count: int) -> list[rules.Rule]:
    if name.startswith("keys-"):
        return many_keys(count, keys=int(name.removeprefix("keys-")))
    return _RULES[name](count) if name in _RULES else rules.of_kind(name, count)


_RULES: Final = {
    "mixed": rules.mixed,
    "break-points": rules.many_break_points,
    "conditions": rules.many_conditions,
    "many-matches": rules.many_matches,
    **HARD,
}
