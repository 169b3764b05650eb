"""`eventbridge serve`: the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import print_line, warn
from eventbridge.cli.runtime import open_runtime

_LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0: one that is free.")] = 8090,
) -> None:
    """Serve the HTTP API: events are published by POST /buses/BUS/events, with a token of `tokens create`.

    SIGTERM or Ctrl-C ends it in good order: no new calls, those under way get a response, exit code 0.
    """
    from eventbridge.api.serve import serve as run

    if host not in _LOCAL:
        warn(f"it listens on {host} without TLS, and tokens travel as they are: put a proxy that speaks TLS before it")
    with open_runtime() as runtime:
        run(runtime, host, port, lambda url: print_line(f"listening on {url}"))
