"""Where the parser stands in a pattern, and the mistakes it has found there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from eventbridge.errors import PatternError

Step: TypeAlias = str | int

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_STEP = re.compile(
    r"\.(?P<plain>[A-Za-z_$][A-Za-z0-9_$-]*)|\[(?P<index>[0-9]+)\]|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]", re.S
)


def json_path(steps: tuple[Step, ...]) -> str:
    """Return keys and indices as a JSON path: `("data", "a.b", 0)` is `$.data['a.b'][0]`."""
    return "$" + "".join(_write_step(step) for step in steps)


def path_steps(path: str) -> tuple[Step, ...]:
    """Return the keys and indices that `json_path` wrote: what a caller looks up in the file the pattern came from."""
    steps: list[Step] = []
    for found in _STEP.finditer(path):
        if found["index"] is not None:
            steps.append(int(found["index"]))
        elif found["plain"] is not None:
            steps.append(found["plain"])
        else:
            steps.append(re.sub(r"\\(.)", r"\1", found["quoted"], flags=re.S))
    return tuple(steps)


@dataclass(frozen=True)
class Location:
    """A place in the pattern; `/` goes to a key or an index below it, `wrong` reports a mistake there."""

    steps: tuple[Step, ...] = ()
    mistakes: list[PatternError] = field(default_factory=list)

    def __truediv__(self, step: Step) -> Location:
        return Location((*self.steps, step), self.mistakes)

    def wrong(self, message: str, value: object, remedy: str) -> None:
        """Add a mistake about `value`, which stands here; `remedy` is a sentence that says what to write."""
        self.mistakes.append(PatternError(message, path=json_path(self.steps), value=value, remedy=remedy))


def _write_step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_KEY.fullmatch(step):
        return f".{step}"
    escaped = re.sub(r"([\\'])", r"\\\1", step)
    return f"['{escaped}']"
