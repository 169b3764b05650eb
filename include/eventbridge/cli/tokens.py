"""Defines the command group `tokens`, which creates, lists, shows and revokes API tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, note, print_line, show_document, show_fields, show_table
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

app = typer.Typer(cls=Group, help="Create, list, show and revoke API tokens.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the token, such as the name of the program that uses it; optional with --portal.",
        ),
    ] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="publish:BUS",
            help="A permission; repeatable. publish:BUS or publish:*, consume:QUEUE or consume:*, "
            "metrics (GET /metrics), read, payloads (with read: see payloads), "
            "operate (pause, enable, redrive, replay).",
        ),
    ] = None,
    owner: Annotated[
        list[str] | None,
        typer.Option(metavar="OWNER", help="Only for the rules and buses of this owner; repeatable."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            "--ttl",
            metavar="TIME",
            help="How long the token is valid, e.g. 90d; default: until you revoke it.",
        ),
    ] = None,
    portal: Annotated[
        bool,
        typer.Option(
            "--portal",
            help="Print a link to a page with the rules, events, targets and dead letters of one --owner, for --ttl. "
            "It is read-only and without payloads, unless --scope payloads or --scope operate is given.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it once; the ledger keeps only its hash."""
    from eventbridge.config.quantities import parse_duration
    from eventbridge.control.api_tokens import create_portal_token, create_token

    try:
        seconds = None if expires is None else parse_duration(expires)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--expires") from None
    if not name and not portal:
        raise typer.BadParameter("name the token, such as after the program that uses it", param_hint="NAME")
    with open_runtime(is_action=True) as runtime:
        create = create_portal_token if portal else create_token
        token, secret = create(runtime, name, scope or (), seconds, owner or ())
    if as_json:
        show_document({"link" if portal else "token": secret} | vars(token))
        return
    print_line(secret)
    what = "the link is valid for everybody who has it" if portal else "store it with your secrets"
    note(f"token {token.name} created with {', '.join(token.scopes)}. It is shown only once: {what}")
    if portal:
        end = f"{token.expires_at:%Y-%m-%d %H:%M} (UTC)"
        note(f"valid until {end}; eventbridge tokens revoke {token.name} ends it before")


@app.command("list", short_help="List tokens, without their secrets.")
def list_tokens(as_json: JsonOption = False) -> None:
    """List the name, the scopes and the times of each token, never the token itself."""
    with open_runtime(expects_ledger=True) as runtime:
        found = runtime.ledger.tokens.all()
    if as_json:
        show_document(found)
        return
    show_table(
        "Tokens, times in UTC",
        ["name", "scopes", "created", "expires", "revoked"],
        [[t.name, ", ".join(t.scopes), t.made_at, t.expires_at, t.revoked_at] for t in found],
    )


@app.command(short_help="Show one token, without its secret.")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")], as_json: JsonOption = False
) -> None:
    """Show the scopes and the times of one token, never the token itself."""
    from eventbridge.control.api_tokens import find_token

    with open_runtime(expects_ledger=True) as runtime:
        found = find_token(runtime, name)
    if as_json:
        show_document(found)
        return
    times = [("created", found.made_at), ("expires", found.expires_at), ("revoked", found.revoked_at)]
    show_fields([("name", found.name), ("scopes", ", ".join(found.scopes)), *times])


@app.command(short_help="Revoke a token permanently.")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")], as_json: JsonOption = False
) -> None:
    """Revoke a token permanently; running servers refuse it within two seconds."""
    from eventbridge.control.api_tokens import revoke_token

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        revoked = revoke_token(runtime, name)
    if as_json:
        show_document({"name": name, "revoked": revoked})
    else:
        done = "revoked. Running servers refuse it within two seconds" if revoked else "is already revoked"
        print_line(f"Token {name} {done}.")
