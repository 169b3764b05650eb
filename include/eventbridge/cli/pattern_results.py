"""`eventbridge rules test`: the results of a pattern for events in JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventbridge.cli.lines import numbered_lines
from eventbridge.cli.runtime import settings
from eventbridge.cli.table import visible
from eventbridge.errors import EventError, UserError

if TYPE_CHECKING:
    from eventbridge.matching.pattern import Pattern
    from eventbridge.matching.reference import UnmetCondition

#: A file whose first so many lines are all not JSON does not hold JSON lines.
_MOST_LINES_HELD = 20


@dataclass(frozen=True)
class PatternResult:
    """The result of a pattern for one event; `error`: the line is not JSON; `malformed`: it is not a CloudEvent."""

    line: int
    event: str | None
    matches: bool | None
    error: str | None = None
    malformed: str | None = None
    findings: tuple[UnmetCondition, ...] = ()

    def __str__(self) -> str:
        word = {True: "true", False: "false", None: "error"}[self.matches]
        about = [self.event, self.error, self.malformed and f"(not a CloudEvent: {self.malformed})"]
        head = visible(f"{self.line}: {' '.join([word, *(part for part in about if part)])}")
        return "\n".join([head, *(f"    {visible(str(finding))}" for finding in self.findings)])


def results_of_lines(pattern: Pattern, events: str, *, cloud_events: bool, explained: bool) -> Iterator[PatternResult]:
    """Yield the result of a pattern for each line of a file, or of standard input for `-`.

    `cloud_events`: also check that the line is a CloudEvent. `explained`: with the conditions that failed. Raises
    UserError for a file that cannot be read, and for one whose lines are not JSON objects.
    """
    return _if_json_lines(_results(pattern, events, cloud_events=cloud_events, explained=explained), events)


def _results(pattern: Pattern, events: str, *, cloud_events: bool, explained: bool) -> Iterator[PatternResult]:
    from eventbridge.event.json_document import parse_document
    from eventbridge.matching.reference import explain, flatten, matches_leaves

    limit = settings().event_max_size
    for number, line in numbered_lines(events):
        try:
            document = parse_document(line)
        except EventError as error:
            yield PatternResult(number, None, None, error=str(error))
            continue
        event = document.get("id")
        matched = matches_leaves(pattern, flatten(document))
        yield PatternResult(
            number,
            event if isinstance(event, str) else None,
            matched,
            malformed=_malformed(line, limit) if cloud_events else None,
            findings=tuple(explain(pattern, document)) if explained and not matched else (),
        )


def _if_json_lines(results: Iterator[PatternResult], events: str) -> Iterator[PatternResult]:
    """Yield the results; raises UserError once if none of the first lines is a JSON object.

    YAML, or JSON over several lines, would otherwise be one error a line.
    """
    held: list[PatternResult] = []
    for result in results:
        held.append(result)
        if result.error is None:
            yield from held
            yield from results
            return
        if len(held) == _MOST_LINES_HELD:
            break
    if held:
        where = "standard input" if events == "-" else events
        none = f"none of the first {len(held)} lines" if len(held) == _MOST_LINES_HELD else "no line"
        raise UserError(
            f"{where}: {none} is one JSON object; line {held[0].line} is {held[0].error}. "
            "Write each event as JSON on one line: `jq -c .` converts JSON over several lines"
        )


def _malformed(line: bytes, limit: int) -> str | None:
    from eventbridge.event.cloudevent import parse_event

    try:
        parse_event(line, max_bytes=limit)
    except EventError as error:
        return str(error)
    return None
