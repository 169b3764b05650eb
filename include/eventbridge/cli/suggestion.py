"""Suggests a command or an option for one that does not exist, and completes the commands of a group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from eventbridge.cli.examples import examples_text
from eventbridge.cli.output import FORMATS, keep_format
from eventbridge.similar_names import similar

#: Sets of words that mean the same in other tools, any of which a user may write for a command or option.
_SYNONYMS: Sequence[frozenset[str]] = (
    frozenset({"list", "show", "ls", "get", "describe"}),
    frozenset({"create", "add", "new", "make"}),
    frozenset({"remove", "delete", "rm", "revoke", "cancel"}),
    frozenset({"start", "run", "begin"}),
    frozenset({"stop", "pause", "suspend"}),
    frozenset({"check", "validate", "lint", "verify"}),
    frozenset({"since", "from", "after"}),
    frozenset({"until", "to", "before"}),
    frozenset({"limit", "max", "count"}),
)


def suggestion(word: str, known: Collection[str], noun: str) -> str:
    """Return `Did you mean x?` with the known command or option nearest to a word, or the list of all known ones.

    A prefix or a misspelling is preferred to a synonym. `noun` is the heading of the list: `Commands: check, show`.
    """
    by_name = {each.lstrip("-"): each for each in known}
    name = word.lstrip("-")
    near = similar(name, by_name, limit=2, cutoff=0.75)
    near = near or [each for same in _SYNONYMS if name in same for each in by_name if each in same]
    near = near or similar(name, by_name, limit=2)
    if near:
        near = [by_name[each] for each in near]
        return f"Did you mean {' or '.join(near)}?"
    return f"{noun}: {', '.join(sorted(known))}"


def misplaced_option(option: str, root: Any, words: Iterable[str]) -> str | None:
    """Return where to write an option that was given before the command that has it; None if no command has it.

    `root` is the command `eventbridge`, `words` are its arguments.
    """
    command, path = root, ["eventbridge"]
    for word in words:
        if isinstance(command, TyperGroup) and word in command.commands:
            command = command.commands[word]
            path.append(word)
    if not isinstance(command, TyperGroup) and option in options_of(command):
        return f"Write it after the command: {' '.join(path)} {option}"
    return "Write it after a command that has it" if option in _options_below(root) else None


def options_of(command: Any) -> list[str]:
    """Return the long options of a command."""
    return [option for each in command.params for option in each.opts if option.startswith("--")]


def _options_below(command: Any) -> Iterator[str]:
    if not isinstance(command, TyperGroup):
        yield from options_of(command)
        return
    for each in command.commands.values():
        yield from _options_below(each)


@cache
def _output_option() -> Any:
    """Return the `-o` option as Typer builds it, because only Typer's own code may construct an option."""
    holder = typer.Typer()

    @holder.command()
    def command(
        output: Annotated[
            str | None,
            typer.Option(
                "-o",
                "--output",
                metavar="|".join(FORMATS),
                help="Format of the output.",
                callback=keep_format,
                expose_value=False,
                is_eager=True,
            ),
        ] = None,
    ) -> None: ...

    return next(each for each in get_command(holder).params if each.name == "output")


def _leave_out_of_usage(parameter: Any) -> None:
    """Leave a hidden argument out of the usage line, in which Typer shows it."""
    if parameter.param_type_name == "argument" and parameter.hidden:
        parameter.get_usage_pieces = lambda _: []


class Group(TyperGroup):
    """A group of commands that suggests the nearest command for an unknown one.

    It adds examples to the help of its commands, and `-o` to the options of those that print data. Help and usage line
    leave out hidden arguments.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        for name, command in self.commands.items():
            if not isinstance(command, TyperGroup):
                command.epilog = examples_text(name if self.name == "eventbridge" else f"{self.name} {name}")
            names = [each.name for each in command.params]
            for each in command.params:
                _leave_out_of_usage(each)
            if "as_json" in names:
                command.params.insert(names.index("as_json"), _output_option())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names. Raises Typer's usage error for an unknown one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command: {args[0]}. {suggestion(args[0], self.commands, 'Commands')}")
        return super().resolve_command(ctx, args)
