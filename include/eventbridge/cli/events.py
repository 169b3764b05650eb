"""Defines the command group `events`, which publishes, tails, finds, shows and traces events."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.lines import count_lines, numbered_lines
from eventbridge.cli.options import LandedBefore, refuse_empty, takes_records
from eventbridge.cli.output import (
    JsonOption,
    note,
    plural,
    print_line,
    readable,
    show_document,
    show_fields,
    show_table,
    show_text,
    warn,
)
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group
from eventbridge.cli.tail import tail
from eventbridge.cli.why import why
from eventbridge.progress import unreported

if TYPE_CHECKING:
    from eventbridge.control.publish import Published
    from eventbridge.runtime.runtime import Runtime
    from eventbridge.views.event_search import EventQuery
    from eventbridge.views.trace.show import ShownEvent

app = typer.Typer(cls=Group, help="Publish, tail, find, show and trace events.", no_args_is_help=True)


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
    with open_runtime() as runtime:
        done = _publish(runtime, bus, topic, file)
    for runner in done.unregistered:
        warn(
            f"the runner {runner} has never run, and the bus {bus} has `start_at: latest`: the runner will not get "
            f"events that are published before its first run. Run it once first, or set `start_at: earliest`"
        )
    if not done.has_rule:
        warn(
            f"no rule uses the bus {bus}, so no runner takes its events, and `events find` does not show them; "
            f"`eventbridge events tail {bus} --from-beginning` does"
        )
    if done.malformed:
        warn(f"malformed events, which will be dead-lettered: {len(done.malformed):,}; the first: {done.malformed[0]}")
    if as_json:
        show_document(
            {
                "bus": bus,
                "topic": done.topic,
                "published": done.count,
                "malformed": len(done.malformed),
                "unregistered": list(done.unregistered),
            }
        )
    else:
        is_taken = done.has_rule and not done.unregistered
        taken = "" if not is_taken else f" The next batch of each runner takes {'it' if done.count == 1 else 'them'}."
        print_line(f"{plural(done.count, 'event', 'events')} published to {bus}/{done.topic}.{taken}")


def _publish(runtime: Runtime, bus: str, topic: str | None, file: str) -> Published:
    """Publish the lines of a file; if a signal ends that, a note says how many events were published before."""
    from eventbridge.control.publish import publish_lines

    published = 0
    is_typed = file == "-" and sys.stdin.isatty()
    with shown_progress("publishing", "events", hidden=is_typed) as progress:
        total = None if progress is unreported else count_lines(file)

        def report(count: int, _: int | None) -> None:
            nonlocal published
            published = count
            progress(count, total)

        try:
            with Interrupts():
                return publish_lines(runtime, bus, topic, numbered_lines(file), report)
        except typer.Exit:
            # the signal may have come when a further transaction was committed but not counted
            note(f"interrupted: at least the first {plural(published, 'event was', 'events were')} published")
            raise


app.command("tail", short_help="Show what arrives on a bus, and forward it.")(tail)


_BusOption = Annotated[str | None, typer.Option("--bus", metavar="BUS", help="Only on this bus; default: on all.")]


@dataclass(frozen=True)
class EventFilter:
    """Options that filter events; an event must meet every given option."""

    bus: _BusOption = None
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="Only events of this type.")] = None
    source: Annotated[str | None, typer.Option(metavar="SOURCE", help="Only events from this source.")] = None
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only events with this subject.")] = None
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS", help="Only events of this status: unmatched, delivered, pending, dead_lettered, unknown."
        ),
    ] = None
    rule: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Only events with deliveries of this rule; --status is then theirs alone."),
    ] = None
    condition: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only events that meet a condition on a JSON path: '$.data.amount > 100'."),
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Events landed since TIME: RFC 3339, or an age such as 2h or 7d."),
    ] = None
    until: LandedBefore = None

    def query(self, now: datetime) -> EventQuery:
        """Return the search. Raises UserError for an invalid time or condition."""
        from eventbridge.runtime.time_range import read_time
        from eventbridge.views.event_condition import read_condition
        from eventbridge.views.event_search import EventQuery

        given = {"bus": self.bus, "type": self.type, "source": self.source, "subject": self.subject}
        given |= {"status": self.status, "rule": self.rule, "condition": self.condition}
        refuse_empty({**given, "from": self.since, "to": self.until})
        return EventQuery(
            bus=self.bus,
            type=self.type,
            source=self.source,
            subject=self.subject,
            since=read_time("from", self.since, now),
            until=read_time("to", self.until, now),
            status=self.status,
            rule=self.rule,
            condition=None if self.condition is None else read_condition(self.condition),
        )


@app.command("find", short_help="Find archived events by attributes, status, rule or a condition.")
@takes_records
def find_events(
    chosen: EventFilter,
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Maximum number of events.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Find archived events by attributes, status, rule or a condition on a JSON path, most recently landed first.

    It finds valid events that a batch has landed. `events why` also finds an event that still waits on its bus.
    """
    from eventbridge.views.event_search import find_events as find

    with open_runtime(expects_ledger=True) as runtime:
        found = find(runtime, chosen.query(runtime.clock()), limit)
    if as_json:
        show_document(found.events)
    else:
        show_table(
            "Events, times in UTC",
            ["id", "type", "source", "published", "landed", "batch"],
            [[e.event_id, e.type, e.source, e.published_at, e.arrived_at, e.batch_id] for e in found.events],
            ids={"batch"},
        )
        if found.cursor is not None:
            note(f"there are more than {limit}; use --limit or a filter")
    for each in found.unreadable:
        warn(f"events may be missing: {each}")
    if found.unreadable:
        raise typer.Exit(1)


@app.command(short_help="Show one event with its payload.")
def show(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event's `id`, exactly as published.")],
    bus: _BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one event: its position and its payload, as it was published.

    If several messages have the id, it shows the first, and a note counts the others. `events why` traces them: rules,
    deliveries, attempts. Exit code 1 if the payload cannot be read.
    """
    from eventbridge.views.trace.show import shown_event

    with open_runtime(expects_ledger=True) as runtime:
        found = shown_event(runtime, event_id, bus)
    if as_json:
        show_document(found)
    else:
        _show_event(found)
    if found.error is not None:
        warn(f"the payload cannot be read: {found.error}")
        raise typer.Exit(1)


def _show_event(found: ShownEvent) -> None:
    show_fields(
        [
            ("event", found.event_id),
            ("source", found.source),
            ("type", found.type),
            ("position", str(found.position)),
            ("status", found.status if found.landed else "not landed yet"),
            ("published at", found.published_at),
        ]
    )
    print_line()
    if found.event is not None:
        show_text("Event", readable(found.event.encode()))
    elif found.error is None:
        print_line("The payload is past its retention.")
    if found.others:
        have = "other message has" if found.others == 1 else "other messages have"
        note(f"{found.others:,} {have} this id: `events why` shows all")


app.command("why", short_help="Trace one event: rules, deliveries, attempts.")(why)
