"""Defines the command `mcp`, which serves agents over stdio or HTTP."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from eventbridge.cli.installation import LOCAL
from eventbridge.cli.output import note, print_line, warn
from eventbridge.cli.runtime import open_runtime, user
from eventbridge.errors import UserError


def mcp(
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Return payloads of events, and texts that quote them, over stdio.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over streamable HTTP, for callers with an API token, not over stdio.")
    ] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="With --http, the address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --http, the port to listen on; 0: any free port.")
    ] = 8091,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="With --http, accept requests whose header Host has NAME, as well as those with a local name; "
            "repeatable.",
        ),
    ] = None,
) -> None:
    """Serve agents by the Model Context Protocol (MCP): tools that show status, events, dead letters and rules.

    The tools read, and change nothing. Over stdio, the client starts this command, and has the rights of its user,
    except that payloads of events are hidden unless you pass --payloads. Over HTTP, each request needs a token from
    `tokens create` with the scope `read`, and with the scope `payloads` to see payloads.
    """
    from eventbridge.mcp.server import serve_http, serve_stdio

    if http and payloads:
        raise UserError("--payloads is for stdio. With --http, the scope payloads of a token decides: leave it out")
    if http and host not in LOCAL:
        warn(f"listening on {host} without TLS, so tokens travel in clear text: put a TLS proxy in front of it")
    if http and host not in LOCAL and not hosts:
        warn("requests with a header Host that is not local are refused: pass the name of this server as --allow-host")
    with open_runtime(needs_ledger=True) as runtime:
        if http:
            serve_http(runtime, host, port, hosts or (), lambda url: print_line(f"listening on {url}"))
        else:
            if sys.stdin.isatty():
                note(
                    "waiting for an agent's client on standard input. Add this command to the configuration of your "
                    "client, or serve over HTTP with --http. Ctrl-C ends it"
                )
            serve_stdio(runtime, user(), payloads=payloads)
