"""The parser's position in a pattern, and the errors found so far."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from eventbridge.errors import PatternError
from eventbridge.matching.pattern.expression import Expressions

Step: TypeAlias = str | int

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def json_path(steps: tuple[Step, ...]) -> str:
    """Return keys and indices as a JSON path: `("data", "a.b", 0)` is `$.data['a.b'][0]`."""
    return "$" + "".join(_write_step(step) for step in steps)


@dataclass(frozen=True)
class Location:
    """A place in the pattern; `/` goes to a key or an index below it, `wrong` reports an error there.

    `expressions` counts the regular expressions that are read in the whole pattern.
    """

    steps: tuple[Step, ...] = ()
    errors: list[PatternError] = field(default_factory=list)
    expressions: Expressions = field(default_factory=Expressions)

    def __truediv__(self, step: Step) -> Location:
        return Location((*self.steps, step), self.errors, self.expressions)

    def wrong(self, message: str, value: object, remedy: str) -> None:
        """Add an error about `value`, which stands here; `remedy` is a sentence that says what to write."""
        self.errors.append(PatternError(message, path=json_path(self.steps), value=value, remedy=remedy))


def _write_step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_KEY.fullmatch(step):
        return f".{step}"
    escaped = re.sub(r"([\\'])", r"\\\1", step)
    return f"['{escaped}']"
