"""The options by which commands choose dead letters."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import note, warn
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.stages.letters.files import Damaged
    from eventbridge.stages.letters.selection import Selection
    from eventbridge.stages.runtime.runtime import Runtime

RuleOption = Annotated[str | None, typer.Option("--rule", metavar="RULE", help="Only those of this rule.")]
TargetOption = Annotated[
    str | None, typer.Option("--target", metavar="TARGET", help="Only those of targets of this name.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="Only those with this reason, e.g. NonRetryable.")
]
ErrorOption = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only those whose detail or attempts' errors have it.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only those last tried since: ISO 8601, or 2h: so long ago."),
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only those last tried before.")]
NameOption = Annotated[
    list[str] | None,
    typer.Option("--name", metavar="NAME", help="Only those that `show` would show; may be given several times."),
]
SqlOption = Annotated[
    str | None,
    typer.Option("--sql", metavar="CONDITION", help="Only those that meet a condition in DuckDB's SQL on the records."),
]


def selection_of(
    now: datetime,
    rule: str | None,
    target: str | None,
    reason: str | None,
    error: str | None,
    since: str | None,
    until: str | None,
    names: list[str] | None,
    sql: str | None,
) -> Selection:
    """Return what the options choose; raises UserError for what a person wrote wrong.

    An option without text is such a mistake: a script's variable that is not set would choose more than was meant.
    """
    from eventbridge.stages.letters.selection import make_selection

    texts = {"rule": rule, "target": target, "reason": reason, "error": error, "since": since, "until": until}
    for option, text in [*texts.items(), ("sql", sql), *(("name", each) for each in names or ())]:
        if text is not None and not text.strip():
            raise UserError(
                f"--{option} is empty, which would choose nothing, or everything. Leave it out, or say what"
            )
    return make_selection(
        now,
        rule=rule,
        target=target,
        reason=reason,
        error=error,
        since=since,
        until=until,
        names=names or (),
        sql=sql,
    )


def tell_passed_over(damaged: Damaged) -> None:
    """Warn of each dead letter file that cannot be read and was passed over; ends with exit code 1 if there is one."""
    for error in damaged.values():
        warn(f"dead letters were passed over: {error}")
    if damaged:
        raise typer.Exit(1)


def note_unknown(work: Runtime, rule: str | None, target: str | None) -> None:
    """Note that no rule file names a rule, or a target, if none does: nothing was found, and this is perhaps why."""
    from eventbridge.rule.fields import nearest

    with suppress(UserError):  # dead letters can be looked at while the rule files are being mended
        rules = work.rule_set().rules
        targets = {name for each in rules.values() for name in each.destinations}
        for what, name, known in (("rule", rule, set(rules)), ("target", target, targets)):
            if name is not None and name not in known:
                note(f"no rule file names a {what} {name!r}. {nearest(name, known)}".rstrip())
