"""The options that several commands share: fields of dataclasses as options, and the selection of dead letters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from eventbridge.cli.output import warn
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.dead_letters.selection import Selection
    from eventbridge.runtime.batch_files import Damaged
    from eventbridge.runtime.runtime import Runtime


#: `--from` and `--to` of commands that read the archive, by the time at which events were landed.
LandedSince = Annotated[
    str,
    typer.Option("--from", metavar="TIME", help="Events landed since TIME: RFC 3339, or an age such as 2h or 7d."),
]
LandedBefore = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Events landed before TIME; default: now.")
]


def takes_records(command: Callable[..., None]) -> Callable[..., None]:
    """Return a Typer command with the fields of its dataclass parameters as options.

    Fields are annotated like parameters, and the default of a field is the default of its option. Field names must be
    unique.
    """
    hints = get_type_hints(command, include_extras=True)
    of_records = {name: list(_parameters(hint)) for name, hint in hints.items() if is_dataclass(hint)}
    seen: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        whole = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for each in of_records.get(name, [whole]):
            if each.name in seen:
                raise TypeError(f"two options of {command.__qualname__} have the name {each.name!r}")
            seen[each.name] = each

    @wraps(command)
    def run(**given: Any) -> None:
        for name, parameters in of_records.items():
            given[name] = hints[name](**{each.name: given.pop(each.name) for each in parameters})
        command(**given)

    run.__signature__ = inspect.Signature(list(seen.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in seen.values()}
    return run


def _parameters(record: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(record, include_extras=True)
    for each in fields(record):
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[each.name])


#: The options whose fields have other names.
_WRITTEN = {"since": "from", "until": "to"}


@dataclass(frozen=True)
class DeadLetterOptions:
    """Options that select dead letters; a dead letter must meet every given option."""

    rule: Annotated[str | None, typer.Option(metavar="RULE", help="Only dead letters of this rule.")] = None
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Only dead letters of targets with this name.")
    ] = None
    reason: Annotated[
        str | None, typer.Option(metavar="REASON", help="Only dead letters with this reason, e.g. non_retryable.")
    ] = None
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only if the detail, or an attempt's error, contains TEXT.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only if last tried since TIME: RFC 3339, or an age such as 2h."),
    ] = None
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only if last tried before TIME.")] = None
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only the dead letter with this NAME, as in `show`; repeatable."),
    ] = None
    sql: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only dead letters that meet a DuckDB SQL condition on their records."),
    ] = None

    @property
    def is_given(self) -> bool:
        """Return whether any option is given."""
        return any(value is not None and value != [] for value in vars(self).values())

    def selection(self, now: datetime) -> Selection:
        """Return the selection. Raises UserError for an option that cannot be used."""
        from eventbridge.dead_letters.selection import WrittenSelection

        refuse_empty({_WRITTEN.get(option, option): value for option, value in vars(self).items()})
        texts = {key: value for key, value in vars(self).items() if key != "name"}
        return WrittenSelection(**texts, names=self.name or ()).read(now)


def refuse_empty(options: Mapping[str, object]) -> None:
    """Raise UserError with the option's name if the value of an option is blank.

    An unset variable of a script would otherwise select more than intended.
    """
    for option, value in options.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.strip():
                raise UserError(f"--{option} is empty. Give it a value, or leave it out")


def warn_about_damage(damaged: Damaged) -> None:
    """Warn about each unreadable dead letter file that was skipped; exit with code 1 if there is one."""
    for error in damaged.values():
        warn(f"dead letters were skipped: {error}")
    if damaged:
        raise typer.Exit(1)


def refuse_unknown(runtime: Runtime, rule: str | None, target: str | None) -> None:
    """Raise NotFoundError for a rule or target that neither the rule files nor past batches name.

    A rule that was removed from the files is accepted, because it may have dead letters. While the files have errors,
    every name is accepted, because dead letters can still be read.
    """
    from eventbridge.rules.find import find_rule, find_target, find_target_of_any

    try:
        rules = runtime.rule_set()
    except UserError:
        return
    if rule is not None and rule not in rules.rules and runtime.ledger.rules.changes(rule, 1):
        return
    if rule is not None:
        find_rule(rules, rule)
    if target is not None and rule is not None:
        find_target(rules, rule, target)
    elif target is not None:
        find_target_of_any(rules, target)
