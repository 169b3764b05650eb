"""How a runner works: in stages, a batch a DAG run, or streaming, a task that delivers events as they come."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from eventbridge.errors import RuleError
from eventbridge.rule.fields import NAME, NAME_REMEDY, Fields
from eventbridge.rule.frozen import FrozenModel
from eventbridge.rule.node import Node
from eventbridge.rule.vocabulary import MODES


class StreamingTimes(FrozenModel):
    """The times of a streaming runner, in seconds."""

    task_duration: float = 600.0  # a task stays so long
    batch_interval: float = 10.0  # a batch stays open so long after its first event
    idle: float = 120.0  # a streaming task without events ends after this
    backlog: float = 20.0  # what waits for longer than this at the beginning of a streaming task is a batch for Spark


class Runner(FrozenModel):
    """What the rule files say of one runner."""

    mode: Literal["batch", "streaming"] = "batch"
    streaming: StreamingTimes = Field(default_factory=StreamingTimes)


def read_runner(name: str, node: Node, errors: list[RuleError]) -> Runner:
    """Return a runner; what is wrong is added to `errors`, and its default stands in its place."""
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for a runner", NAME_REMEDY))
    fields = Fields(node, errors, "a runner")
    read = Runner(mode=fields.choice("mode", "batch", MODES), streaming=_streaming(fields))
    if read.mode == "batch":
        fields.refuse(
            ["streaming"], "{} is for mode: streaming, and the mode is batch", "Write mode: streaming, or remove it"
        )
    fields.close()
    return read


def _streaming(fields: Fields) -> StreamingTimes:
    if fields.get("streaming") is None:
        return StreamingTimes()
    own, usual = fields.below("streaming", "streaming mode"), StreamingTimes()
    read = StreamingTimes(
        task_duration=own.duration("task_duration", usual.task_duration, 60.0, 86_400.0),
        batch_interval=own.duration("batch_interval", usual.batch_interval, 1.0, 60.0),
        idle=own.duration("idle", usual.idle, 5.0, 86_400.0),
        backlog=own.duration("backlog", usual.backlog, 1.0, 3_600.0),
    )
    own.close()
    return read
