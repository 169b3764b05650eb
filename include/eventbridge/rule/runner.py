"""How a runner works: in stages, a batch a DAG run, or express, a shift that delivers events as they come."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from eventbridge.errors import Mistake
from eventbridge.rule.fields import NAME, NAME_REMEDY, Fields
from eventbridge.rule.frozen import Frozen
from eventbridge.rule.node import Node
from eventbridge.rule.vocabulary import MODES


class Express(Frozen):
    """The times of an express runner, in seconds."""

    shift: float = 600.0  # a task stays so long
    window: float = 10.0  # one batch holds so much
    idle: float = 120.0  # a shift without events ends after this
    backlog: float = 20.0  # what waits for longer than this at the beginning of a shift is a batch for Spark


class Runner(Frozen):
    """What the rule files say of one runner."""

    mode: Literal["staged", "express"] = "staged"
    express: Express = Field(default_factory=Express)


def read_runner(name: str, node: Node, mistakes: list[Mistake]) -> Runner:
    """Return a runner; what is wrong is added to `mistakes`, and its default stands in its place."""
    if not NAME.fullmatch(name):
        mistakes.append(node.mistake_at_key(f"{name!r} is not a valid name for a runner", NAME_REMEDY))
    fields = Fields(node, mistakes, "a runner")
    read = Runner(mode=fields.choice("mode", "staged", MODES), express=_express(fields))
    if read.mode == "staged":
        fields.refuse(
            ["express"], "{} is for mode: express, and the mode is staged", "Write mode: express, or remove it"
        )
    fields.close()
    return read


def _express(fields: Fields) -> Express:
    if fields.get("express") is None:
        return Express()
    own, usual = fields.below("express", "an express lane"), Express()
    read = Express(
        shift=own.duration("shift", usual.shift, 60.0, 86_400.0),
        window=own.duration("window", usual.window, 1.0, 60.0),
        idle=own.duration("idle", usual.idle, 5.0, 86_400.0),
        backlog=own.duration("backlog", usual.backlog, 1.0, 3_600.0),
    )
    own.close()
    return read
