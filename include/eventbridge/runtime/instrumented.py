"""Reports the ends of stages to a runtime's telemetry. Without telemetry, stages run unchanged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from eventbridge.runtime.runtime import Runtime
from eventbridge.telemetry.protocol import NO_TELEMETRY, StageEnded

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Rest = ParamSpec("Rest")
Ended = TypeVar("Ended")


def instrumented(
    stage: str, of: Literal["batch", "runner", ""] = "batch"
) -> Callable[[Callable[Concatenate[Runtime, Rest], Result]], Callable[Concatenate[Runtime, Rest], Result]]:
    """Return a decorator that reports the end of a stage to the runtime's telemetry.

    `of` is what the first argument after the runtime names: a batch, a runner, or neither. If it does not name a batch,
    the batch is taken from the result of the stage, if that is an id or an object with `batch_id`.
    """

    def decorate(
        function: Callable[Concatenate[Runtime, Rest], Result],
    ) -> Callable[Concatenate[Runtime, Rest], Result]:
        @wraps(function)
        def run(runtime: Runtime, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
            if runtime.telemetry is NO_TELEMETRY:
                return function(runtime, *args, **kwargs)
            named = args[0] if args else next(iter(kwargs.values()), None)
            subject = named if isinstance(named, str) else None
            started = runtime.clock()
            runner, batch_id = (subject, None) if of == "runner" else (None, subject if of == "batch" else None)
            try:
                result = function(runtime, *args, **kwargs)
            except BaseException as error:
                _report_stage(runtime, stage, runner, batch_id, started, type(error).__name__)
                raise
            _report_stage(runtime, stage, runner, batch_id or _batch_of(result), started, None)
            return result

        return run

    return decorate


def report_ended(take: Callable[[Ended], None], ended: Ended) -> None:
    """Pass `ended` to a method of the telemetry. An error of the telemetry is logged and otherwise ignored."""
    try:
        take(ended)
    except Exception:
        log.warning("telemetry failed, and %r was not reported", ended, exc_info=True)


def _report_stage(
    runtime: Runtime, stage: str, runner: str | None, batch_id: str | None, started: datetime, error: str | None
) -> None:
    report_ended(runtime.telemetry.stage_ended, StageEnded(stage, runner, batch_id, started, runtime.clock(), error))


def _batch_of(result: Any) -> str | None:
    found = result if isinstance(result, str) else getattr(result, "batch_id", None)
    return found if isinstance(found, str) else None
