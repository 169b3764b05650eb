"""`eventbridge heartbeat`: one event to a URL, each minute, for those without Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, say, show_json, warn
from eventbridge.cli.runtime import runtime

_UNWELL = 1


def heartbeat(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the event is sent by POST.")],
    as_json: JsonOption = False,
) -> None:
    """Send one event that says how the installation stands; to be called each minute.

    Exit code 1 if something is wrong, which the event then says; 4 if the address did not take it.
    """
    from eventbridge.stages.operate.heartbeat import heartbeat as beat_of
    from eventbridge.stages.operate.heartbeat import send_heartbeat

    with runtime(looking=True) as work:
        beat = beat_of(work)
    send_heartbeat(url, beat)
    if as_json:
        show_json(beat)
    else:
        for each in beat.trouble:
            warn(each)
        say("sent; something is wrong" if beat.trouble else "sent; all is well")
    if beat.trouble:
        raise typer.Exit(_UNWELL)
