"""Counts the events that a replay would take, with samples. It records no replay, and sends nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from eventbridge.model.redelivery import Replay, ReplayPart, ReplayPosition
from eventbridge.processes import check_cancelled
from eventbridge.progress import Progress, unreported
from eventbridge.replay.account import events_to_read
from eventbridge.replay.archive import files_from
from eventbridge.replay.choose import Chooser
from eventbridge.replay.plan import build_replay, rules_of_part
from eventbridge.replay.request import ReplayRequest
from eventbridge.routing.events import SliceEvents, match_rows
from eventbridge.routing.program import route_program
from eventbridge.runtime.runtime import Runtime

_SAMPLES = 3
#: The maximum number of archive files that are read while a caller waits for a page or a response.
PREVIEW_FILES = 50


@dataclass
class ReplaySurvey:
    """The files that a replay would read, the events that it would take, and, by `<rule>/<target>`, the deliveries and
    the ids of sample events.

    For a rule with `where`, all events that its pattern matches are counted, because Spark is not used. `more` is
    True if there are files that were not read.
    """

    files: int = 0
    read: int = 0
    taken: int = 0
    deliveries: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[str]] = field(default_factory=dict)
    more: bool = False


def survey(
    runtime: Runtime, request: ReplayRequest, max_files: int | None = None, progress: Progress = unreported
) -> ReplaySurvey:
    """Return counts and samples of the events that a replay would take if it began now.

    At most `max_files` archive files are read. Rule sets are written to the store, and nothing else. `progress` gets
    the number of archived events read.
    """
    replay = build_replay(runtime, request, "", runtime.ledger.now())
    found = ReplaySurvey()
    total = None if progress is unreported else events_to_read(runtime, replay)
    for number, part in enumerate(replay.parts):
        chooser = Chooser(runtime, replay, part)
        for each, first in files_from(runtime, replay, ReplayPosition(part=number)):
            check_cancelled()
            if found.files == max_files:
                found.more = True
                return found
            events, _ = chooser.events(each, first)
            found.files += 1
            found.read += each[0].rows
            found.taken += events.num_rows
            progress(found.read, total)
            if events.num_rows:
                _count(runtime, replay, part, each[0].rule_set, events, found)
    return found


def _count(
    runtime: Runtime, replay: Replay, part: ReplayPart, rule_set: str, events: pa.Table, found: ReplaySurvey
) -> None:
    rules = rules_of_part(runtime, replay, part, rule_set)
    program = route_program(part.rule_set or rules.hash, rules, replay.bus)
    rows = np.arange(events.num_rows, dtype=np.int32)
    matched, _ = match_rows(program, SliceEvents(lambda: events, rows, runtime.settings.event_max_size))
    for number, rule in enumerate(program.rules):
        numbers = matched.rows_of(number)
        for target in rule.targets if len(numbers) else ():
            name = f"{rule.name}/{target}"
            found.deliveries[name] += len(numbers)
            samples = found.samples.setdefault(name, [])
            samples += [events["event_id"][int(each)].as_py() for each in numbers[: _SAMPLES - len(samples)]]
