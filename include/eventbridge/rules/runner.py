"""The configuration of a runner: batch mode (one DAG run per batch) or streaming mode (a long-lived task)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from eventbridge.errors import RuleError
from eventbridge.rules.fields import NAME, NAME_REMEDY, Fields
from eventbridge.rules.frozen import FrozenModel
from eventbridge.rules.node import Node
from eventbridge.rules.vocabulary import MODES


class StreamingTimes(FrozenModel):
    """The times of a streaming runner, in seconds."""

    task_duration: float = 600.0  # duration of a streaming task
    batch_interval: float = 10.0  # how long a batch stays open after its first event
    idle: float = 120.0  # idle time after which a streaming task ends
    backlog: float = 20.0  # events older than this at the start of a streaming task become a batch for Spark


class Runner(FrozenModel):
    """The configuration of one runner in the rule files."""

    mode: Literal["batch", "streaming"] = "batch"
    streaming: StreamingTimes = Field(default_factory=StreamingTimes)


def read_runner(name: str, node: Node, errors: list[RuleError]) -> Runner:
    """Return a runner; errors are added to `errors` and replaced by defaults."""
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for a runner", NAME_REMEDY))
    fields = Fields(node, errors, "a runner")
    read = Runner(mode=fields.choice("mode", "batch", MODES), streaming=_streaming(fields))
    if read.mode == "batch":
        fields.refuse(
            ["streaming"], "{} is for mode: streaming, but the mode is batch", "Write mode: streaming, or remove it"
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
