"""`eventbridge bus`: publish events to an embedded bus."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, show_json
from eventbridge.cli.workplace import workplace
from eventbridge.errors import NotFoundError, UserError
from eventbridge.rule import Bus, RuleSet
from eventbridge.sources.embedded import EmbeddedBus
from eventbridge.stages.workplace import Workplace

app = typer.Typer(help="Publish events to an event bus.", no_args_is_help=True)

_PUBLISHED_AT_ONCE = 1_000


@app.callback()
def _group() -> None:
    """Publish events to an event bus."""


@app.command()
def publish(
    bus: Annotated[str, typer.Argument(help="Name of the event bus in the rule files.")],
    file: Annotated[str, typer.Argument(help="JSON lines, one CloudEvent a line; - reads standard input.")],
    topic: Annotated[str | None, typer.Option(help="Topic; default: the bus's first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish each line of FILE as one event; returns once all of them are durable.

    Lines are published as they are: what is no CloudEvent becomes a dead letter `Malformed` when it is read.
    """
    with workplace() as work:
        rules = work.rule_set()
        found = rules.buses.get(bus)
        if found is None:
            raise NotFoundError(f"no rule file names a bus {bus!r}. Buses: {', '.join(sorted(rules.buses)) or 'none'}")
        waiting_from_latest = _unregistered(work, rules, found)
        source = work.open_source(found)
        if not isinstance(source, EmbeddedBus):
            raise UserError(f"bus {bus!r} is not embedded: publish with the tools of its own broker")
        count = 0
        try:
            lines = _lines(file)
            while batch := list(islice(lines, _PUBLISHED_AT_ONCE)):
                count += len(source.publish([(line, _key(line)) for line in batch], topic=topic))
        finally:
            source.close()
    for runner in waiting_from_latest:
        typer.echo(
            f"warning: runner {runner!r} has never run and its bus starts at `latest`: "
            "it will not see what was published before its first run",
            err=True,
        )
    if as_json:
        show_json({"bus": bus, "published": count, "unregistered": waiting_from_latest})
    else:
        typer.echo(f"published {count:,} events to {bus}")


def _unregistered(work: Workplace, rules: RuleSet, bus: Bus) -> list[str]:
    """Return the runners of a bus that start at `latest` and whose group is not registered yet."""
    if bus.source.start_at != "latest":
        return []
    runners = [runner for runner, name in sorted(rules.runners().items()) if name == bus.name]
    return [runner for runner in runners if not work.ledger.committed_offsets(runner)]


def _lines(file: str) -> Iterator[bytes]:
    if file == "-":
        yield from _filled(sys.stdin.buffer)
        return
    try:
        with Path(file).open("rb") as stream:
            yield from _filled(stream)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}. Name a file of JSON lines, or - for input") from error


def _filled(stream: object) -> Iterator[bytes]:
    for line in stream:  # type: ignore[attr-defined]
        stripped = line.strip()
        if stripped:
            yield stripped


def _key(line: bytes) -> str | None:
    """Return what keeps related events in one queue: the extension `partitionkey`, else the subject, else nothing."""
    try:
        event = json.loads(line)
    except ValueError:
        return None  # published as it is; buffer says what is wrong with it
    if not isinstance(event, dict):
        return None
    key = event.get("partitionkey", event.get("subject"))
    return key if isinstance(key, str) else None
