"""`eventbridge rules release`: let a rule go on that is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, say, show_json
from eventbridge.cli.table import cell_text, counted
from eventbridge.cli.workplace import workplace

if TYPE_CHECKING:
    from eventbridge.stages.release import Released


def release(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")], as_json: JsonOption = False
) -> None:
    """Let a rule go on that is held because routing it failed by itself: its references are due now.

    Do it once what made it fail is mended elsewhere; a change of the rule's file releases it by itself.
    """
    from eventbridge.cli.find import find_rule
    from eventbridge.stages.release import release_rule

    with workplace(looking=True) as work:
        find_rule(work.rule_set(), rule)
        released = release_rule(work, rule)
    if as_json:
        show_json(released)
    else:
        say(_told(released))


def _told(released: Released) -> str:
    """Return what was released, in one line."""
    if released.nothing:
        return f"{released.rule} is not held, and nothing of it waits to be released"
    hold = released.hold
    since = f" since {cell_text(hold.since)} UTC ({cell_text(hold.reason)})" if hold else ""
    head = f"{released.rule} was held{since} and goes on" if hold else f"{released.rule} is not held"
    if released.waits_for:
        return f"{head}; its references go on waiting: {released.waits_for}"
    if not released.references:
        return f"{head}; nothing of it waits"
    references = counted(released.references, "reference", "references")
    return f"{head}; {references} with {counted(released.events, 'event', 'events')} are due now"
