"""`eventbridge targets`: take a target that was disabled back into service."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, show_json
from eventbridge.cli.workplace import workplace
from eventbridge.errors import NotFoundError
from eventbridge.stages.enable import enable_target

app = typer.Typer(help="Take targets back into service.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Take targets back into service."""


@app.command()
def enable(
    rule: Annotated[str, typer.Argument(help="Name of the rule.")],
    target: Annotated[str, typer.Argument(help="Name of the target in that rule.")],
    as_json: JsonOption = False,
) -> None:
    """Enable a target that answered 410: what was held for it is due now."""
    with workplace() as work:
        rules = work.rule_set().rules
        if rule not in rules or target not in rules[rule].targets:
            raise NotFoundError(f"no rule file names {rule}/{target}. `eventbridge rules show` lists them")
        released = enable_target(work, rule, target)
    if as_json:
        show_json({"rule": rule, "target": target, "released": released})
    else:
        typer.echo(f"enabled {rule}/{target}; {released:,} deliveries that were held are due now")
