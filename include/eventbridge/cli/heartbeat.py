"""`eventbridge heartbeat`: sends one heartbeat event to a URL; an alarm for installations without Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_json, warn
from eventbridge.cli.runtime import open_runtime
from eventbridge.errors import UserError

_UNHEALTHY = 1


def heartbeat(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="Where to POST the event. Put a URL that is a secret into the connection that "
            "EVENTBRIDGE_HEARTBEAT_CONNECTION names, and leave it out here.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send one event with the status of the installation; run it every minute.

    Exit code 1 if the event reports a problem, 4 if the address did not accept it.
    """
    from eventbridge.control.heartbeat import beat as beat_by_connection
    from eventbridge.control.heartbeat import heartbeat as beat_of
    from eventbridge.control.heartbeat import send_heartbeat

    with open_runtime(expects_ledger=True, writes=True) as runtime:
        connection = runtime.settings.heartbeat_connection
        if url is None and connection is None:
            raise UserError("no address given. Give a URL, or set EVENTBRIDGE_HEARTBEAT_CONNECTION")
        beat = beat_by_connection(runtime, connection) if url is None and connection is not None else beat_of(runtime)
    if url is not None:
        send_heartbeat(url, beat)
    if as_json:
        show_json(beat)
    else:
        for each in beat.problems:
            warn(each)
        print_line("sent; it reports problems" if beat.problems else "sent; healthy")
    if beat.problems:
        raise typer.Exit(_UNHEALTHY)
