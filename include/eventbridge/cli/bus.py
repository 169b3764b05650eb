"""Defines the command group `bus`, which publishes events to a bus."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.lines import numbered_lines
from eventbridge.cli.output import JsonOption, plural, print_line, show_json, warn
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

app = typer.Typer(cls=Group, help="Publish events to an event bus.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Publish events to an event bus."""


@app.command(short_help="Publish each line of a file as one event.")
def publish(
    bus: Annotated[str, typer.Argument(metavar="BUS", help="Name of the event bus in the rule files.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File with one CloudEvent in JSON per line; - is standard input.")
    ],
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Topic; default: the first topic of the bus.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish each line of FILE as one event; all events are durable when the command ends.

    Events with the same `partitionkey` (or, without one, the same `subject`) go to one partition, in order.
    Lines are published unchanged: a line that is not a CloudEvent becomes a dead letter with the reason `malformed`.
    """
    from eventbridge.control.publish import publish_lines

    with open_runtime() as runtime:
        done = publish_lines(runtime, bus, topic, numbered_lines(file))
    for runner in done.unregistered:
        warn(
            f"the runner {runner} has never run, and the bus {bus} has `start_at: latest`: the runner will not get "
            f"events that are published before its first run. Run it once first, or set `start_at: earliest`"
        )
    if done.malformed:
        warn(f"malformed events, which will be dead-lettered: {len(done.malformed):,}; the first: {done.malformed[0]}")
    if as_json:
        show_json(
            {
                "bus": bus,
                "topic": done.topic,
                "published": done.count,
                "malformed": len(done.malformed),
                "unregistered": list(done.unregistered),
            }
        )
    else:
        print_line(f"{plural(done.count, 'event', 'events')} published to {bus}/{done.topic}")
