"""What a person may have meant by a command or an option that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Any

from typer.core import TyperGroup

#: Words that other tools use for one thing; here a command or an option has one of them.
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


def suggestion(word: str, known: Collection[str], what: str) -> str:
    """Return `Did you mean x?` for the command or option that is nearest to a word, or else all of them.

    A word that only begins or misspells one is nearest to it; then comes one that means the same. `what` heads the
    list of all: `Commands: check, show`.
    """
    by_name = {each.lstrip("-"): each for each in known}
    name = word.lstrip("-")
    near = difflib.get_close_matches(name, by_name, n=2, cutoff=0.75)
    near = near or [each for same in _SYNONYMS if name in same for each in by_name if each in same]
    near = near or difflib.get_close_matches(name, by_name, n=2, cutoff=0.6)
    if near:
        near = [by_name[each] for each in near]
        return f"Did you mean {' or '.join(near)}?"
    return f"{what}: {', '.join(sorted(known))}"


class Group(TyperGroup):
    """A group of commands that answers an unknown one with what may be meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names; raises Typer's usage error for an unknown one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command: {args[0]}. {suggestion(args[0], self.commands, 'Commands')}")
        return super().resolve_command(ctx, args)
