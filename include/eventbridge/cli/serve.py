"""`eventbridge serve`: the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import print_line, warn
from eventbridge.cli.runtime import open_runtime

_LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0: any free port.")] = 8090,
) -> None:
    """Serve the HTTP API and the page: publish events by POST /buses/BUS/events, with a token of `tokens create`.

    SIGTERM or Ctrl-C stops it gracefully: it accepts no new calls, responds to those under way, and exits with 0.
    """
    from eventbridge.api.serve import serve as run

    if host not in _LOCAL:
        warn(f"listening on {host} without TLS, so tokens travel in clear text: put a TLS proxy in front of it")
    with open_runtime() as runtime:
        run(runtime, host, port, lambda url: print_line(f"listening on {url}"))
