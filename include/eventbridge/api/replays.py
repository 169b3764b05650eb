"""Serves the calls that preview, start, pause, resume and cancel replays; none of them delivers events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from eventbridge.api import models
from eventbridge.api.call_pools import run_expensive
from eventbridge.api.descriptions import described
from eventbridge.api.documents import Accepted
from eventbridge.api.operator_calls import RESPONSES, Operator, record_name, respond_once, start_once
from eventbridge.api.routes import JsonCall
from eventbridge.control.consecutive_batches import cancel_replay, pause_replay, resume_replay
from eventbridge.model.api import V1
from eventbridge.replay.account import find_replay, replay_document
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.replay.survey import PREVIEW_FILES, ReplaySurvey, survey
from eventbridge.routing.compile_process import compilation
from eventbridge.runtime.runtime import Runtime

router = APIRouter(prefix=V1, route_class=JsonCall, default_response_class=Response, responses=RESPONSES)


class ReplayCall(BaseModel):
    """The archived events to deliver again, and how. Times are ISO 8601, or an age such as 2h."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"bus": "orders", "from": "2h", "rules": ["big-orders"], "dry_run": True}]},
    )

    bus: str
    since: str = Field(alias="from")
    until: str = Field("", alias="to")
    rules: list[str] = Field([], max_length=1_000)
    targets: list[str] = Field([], max_length=1_000)
    pattern: dict[str, Any] | None = Field(None, description="Only events that also match this pattern.")
    sql: str = Field("", description="Only events that also meet this SQL condition.")
    as_of: Literal["current", "original"] = Field(
        "current", description="Use the rules in force, or the rules that routed the events."
    )
    same_ids: bool = Field(False, description="Keep the delivery ids of the original deliveries.")
    skip_delivered: bool = Field(False, description="Skip deliveries that succeeded before.")
    rate: float | None = Field(None, allow_inf_nan=False, description="The maximum number of deliveries per second.")
    dry_run: bool = Field(
        False, description="Only report what would be delivered, from at most 50 files of the archive."
    )

    def written_request(self) -> WrittenReplayRequest:
        """Return the request in the form that the command line uses."""
        return WrittenReplayRequest(
            self.bus,
            since=self.since,
            until=self.until or None,
            rules=self.rules,
            targets=self.targets,
            pattern=self.pattern,
            sql=self.sql or None,
            as_of=self.as_of,
            new_ids=not self.same_ids,
            skip_delivered=self.skip_delivered,
            rate=self.rate,
        )


@router.post(
    "/replays",
    summary="Deliver archived events again",
    **described("start_replay", "replays", ReplaySurvey, accepted=models.Replay),
)
async def begin(request: Request, token: Operator, call: ReplayCall) -> Response:
    """Record a replay and return it, or return the dry run. A DAG run, or `eventbridge replays resume`, delivers it."""
    run = await record_name(request, token)

    def start(runtime: Runtime) -> Any:
        replay_request = call.written_request().read(runtime.ledger.now(), runtime.rule_set())
        if call.dry_run:
            compilation.wait()
            return survey(runtime, replay_request, PREVIEW_FILES)
        return Accepted(replay_document(runtime, begin_replay(runtime, replay_request, run).replay_id))

    return await start_once(request, token, "replay", start, within=run_expensive)


_Replay = Annotated[str, Path(description="The id, or the beginning of it.")]


@router.post(
    "/replays/{replay}/pause", summary="Pause a replay", **described("pause_replay", "replays", models.ReplayChanged)
)
async def pause(request: Request, token: Operator, replay: _Replay) -> Response:
    """Pause a replay; the batch in progress is finished."""
    return await respond_once(request, token, _change(replay, pause_replay))


@router.post(
    "/replays/{replay}/resume", summary="Resume a replay", **described("resume_replay", "replays", models.ReplayChanged)
)
async def resume(request: Request, token: Operator, replay: _Replay) -> Response:
    """Resume a replay that is paused. A DAG run, or `eventbridge replays resume`, delivers the rest."""
    return await start_once(request, token, "replay", _change(replay, resume_replay))


@router.post(
    "/replays/{replay}/cancel", summary="Cancel a replay", **described("cancel_replay", "replays", models.ReplayChanged)
)
async def cancel(request: Request, token: Operator, replay: _Replay) -> Response:
    """Cancel a replay; the batch in progress is finished."""
    return await respond_once(request, token, _change(replay, cancel_replay))


def _change(replay: str, change: Callable[[Runtime, str], bool]) -> Callable[[Runtime], dict[str, Any]]:
    """Return a function that changes the state of a replay and returns the new one."""

    def apply(runtime: Runtime) -> dict[str, Any]:
        name = find_replay(runtime, replay).replay_id
        done = change(runtime, name)
        return {"replay_id": name, "state": find_replay(runtime, name).state, "changed": done}

    return apply
