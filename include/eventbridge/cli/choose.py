"""The options by which commands choose dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import warn
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.stages.dead_letters.files import Damaged
    from eventbridge.stages.dead_letters.selection import Selection
    from eventbridge.stages.runtime.runtime import Runtime


@dataclass(frozen=True)
class DeadLetterOptions:
    """Options that choose dead letters: all that fit every one that is given."""

    rule: Annotated[str | None, typer.Option(metavar="RULE", help="Only those of this rule.")] = None
    target: Annotated[str | None, typer.Option(metavar="TARGET", help="Only those of targets of this name.")] = None
    reason: Annotated[
        str | None, typer.Option(metavar="REASON", help="Only those with this reason, e.g. NonRetryable.")
    ] = None
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those whose detail or attempts' errors have it.")
    ] = None
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those last tried since: ISO 8601, or an age such as 2h.")
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only those last tried before.")] = None
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only those that `show` would show; may be given several times."),
    ] = None
    sql: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only those that meet a condition in DuckDB's SQL on the records."),
    ] = None

    @property
    def any(self) -> bool:
        """Whether one is given."""
        return any(value is not None and value != [] for value in vars(self).values())

    def selection(self, now: datetime) -> Selection:
        """Return what they choose; raises UserError for what a person wrote wrong."""
        from eventbridge.stages.dead_letters.selection import WrittenSelection

        refuse_empty(vars(self))
        texts = {key: value for key, value in vars(self).items() if key != "name"}
        return WrittenSelection(**texts, names=self.name or ()).read(now)


def refuse_empty(options: Mapping[str, object]) -> None:
    """Raise UserError for an option that is given without text, by its name; values that are no text pass.

    A script's variable that is not set would choose more than was meant.
    """
    for option, value in options.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.strip():
                raise UserError(
                    f"--{option} is empty, which would choose nothing, or everything. Leave it out, or say what"
                )


def tell_passed_over(damaged: Damaged) -> None:
    """Warn of each dead letter file that cannot be read and was passed over; ends with exit code 1 if there is one."""
    for error in damaged.values():
        warn(f"dead letters were passed over: {error}")
    if damaged:
        raise typer.Exit(1)


def refuse_unknown(runtime: Runtime, rule: str | None, target: str | None) -> None:
    """Raise NotFoundError for the name of a rule or target that neither the rule files nor past batches have.

    A rule that was removed from the files has dead letters and is known. Nothing is refused while the files have
    errors: dead letters can be read meanwhile.
    """
    from eventbridge.stages.operate.find import find_rule, find_target, find_target_of_any

    try:
        rules = runtime.rule_set()
    except UserError:
        return
    if rule is not None and rule not in rules.rules and runtime.ledger.rule_changes(rule, 1):
        return
    if rule is not None:
        find_rule(rules, rule)
    if target is not None and rule is not None:
        find_target(rules, rule, target)
    elif target is not None:
        find_target_of_any(rules, target)
