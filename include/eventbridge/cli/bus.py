"""`eventbridge bus`: publish events to a bus."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.lines import numbered_lines
from eventbridge.cli.output import JsonOption, say, show_json, warn
from eventbridge.cli.runtime import runtime
from eventbridge.cli.table import counted
from eventbridge.errors import BusError, EventError

if TYPE_CHECKING:
    from eventbridge.rule import Bus, RuleSet
    from eventbridge.stages.runtime.runtime import Runtime

app = typer.Typer(help="Publish events to an event bus.", no_args_is_help=True)

_PUBLISHED_AT_ONCE = 1_000


@app.callback()
def _group() -> None:
    """Publish events to an event bus."""


@app.command()
def publish(
    bus: Annotated[str, typer.Argument(metavar="BUS", help="Name of the event bus in the rule files.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines, one CloudEvent a line; - is standard input.")
    ],
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Topic; default: the bus's first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish each line of FILE as one event; all of them are durable when it ends.

    Events with the same `partitionkey`, else the same `subject`, go to one queue, in order.
    Lines are published as they are: what is no CloudEvent becomes a dead letter `Malformed`.
    """
    from eventbridge.stages.operate.find import find_bus, find_topic

    with runtime() as work:
        rules = work.rule_set()
        found = find_bus(rules, bus)
        topic = find_topic(found, topic)
        unregistered = _unregistered(work, rules, found)
        published, malformed = _publish(work, found, topic, file)
    for runner in unregistered:
        warn(
            f"the runner {runner} has never run and the bus {bus} starts at latest: it will not see what was "
            f"published before its first run. Run it once before, or set start_at: earliest"
        )
    if malformed:
        warn(f"{len(malformed):,} of them will be dead letters Malformed, the first is {malformed[0]}")
    if as_json:
        show_json(
            {
                "bus": bus,
                "topic": topic,
                "published": published,
                "malformed": len(malformed),
                "unregistered": unregistered,
            }
        )
    else:
        say(f"{counted(published, 'event', 'events')} published to {bus}/{topic}")


def _publish(work: Runtime, bus: Bus, topic: str, file: str) -> tuple[int, list[str]]:
    """Return how many lines were published, and what is wrong with those that are no CloudEvents."""
    count = 0
    malformed: list[str] = []
    with closing(work.open_publisher(bus)) as publisher:
        lines = numbered_lines(file)
        while batch := list(islice(lines, _PUBLISHED_AT_ONCE)):
            keyed = [_keyed(number, line, work.settings.event_max_bytes, malformed) for number, line in batch]
            try:
                count += len(publisher.publish(keyed, topic=topic))
            except BusError as error:
                raise BusError(
                    f"{count:,} events were published, those from line {batch[0][0]} on not: {error}"
                ) from error
    return count, malformed


def _unregistered(work: Runtime, rules: RuleSet, bus: Bus) -> list[str]:
    """Return the runners of a bus that start at `latest` and whose group is not registered yet."""
    if bus.source.start_at != "latest":
        return []
    runners = [runner for runner, name in sorted(rules.runners().items()) if name == bus.name]
    return [runner for runner in runners if not work.ledger.committed_offsets(runner)]


def _keyed(number: int, line: bytes, limit: int, malformed: list[str]) -> tuple[bytes, str | None]:
    """Return a line with what keeps related events in one queue: `partitionkey`, else the subject, else nothing."""
    from eventbridge.event.cloudevent import parse_event

    try:
        document = parse_event(line, max_bytes=limit).document
    except EventError as error:
        malformed.append(f"line {number}: {error}")
        return line, None
    key = document.get("partitionkey", document.get("subject"))
    return line, key if isinstance(key, str) else None
