"""Replays by the API: what one would take, its beginning, pause and end; nothing is delivered here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from eventbridge.api.json_call import JsonCall
from eventbridge.api.once import RESPONSES, Operator, begun, once, run_of
from eventbridge.stages.operate.deliver_replay import cancel_replay, pause_replay, resume_replay
from eventbridge.stages.operate.replay_progress import find_replay, replay_document
from eventbridge.stages.replay.plan import begin_replay
from eventbridge.stages.replay.request import WrittenReplayRequest
from eventbridge.stages.replay.survey import PREVIEW_FILES, survey
from eventbridge.stages.runtime.runtime import Runtime

router = APIRouter(route_class=JsonCall, default_response_class=Response, responses=RESPONSES)


class ReplayCall(BaseModel):
    """Which archived events are delivered again, and how; times are ISO 8601, or an age such as 2h."""

    model_config = ConfigDict(extra="forbid")

    bus: str
    since: str
    until: str = ""
    rules: list[str] = Field([], max_length=1_000)
    targets: list[str] = Field([], max_length=1_000)
    pattern: dict[str, Any] | None = Field(None, description="Only events that it matches, too.")
    sql: str = Field("", description="Only events that meet this SQL condition, too.")
    as_of: Literal["today", "then"] = Field("today", description="Today's rules, or those that routed the events.")
    same_ids: bool = Field(False, description="Under the delivery ids that the deliveries had.")
    skip_delivered: bool = Field(False, description="Not what was delivered before.")
    rate: float | None = Field(None, description="At most so many deliveries a second.")
    dry_run: bool = Field(False, description="Only say what would be taken, of at most 50 files of the archive.")

    def written(self) -> WrittenReplayRequest:
        """Return it as a person would write it."""
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


@router.post("/replays", summary="Deliver archived events again")
async def begin(request: Request, token: Operator, call: ReplayCall) -> Response:
    """Record a replay and return it: a DAG run, or `eventbridge replay resume`, delivers it. Or the dry run."""
    run = await run_of(request, token)

    def made(runtime: Runtime) -> Any:
        replay_request = call.written().read(runtime.ledger.now(), runtime.rule_set())
        if call.dry_run:
            return survey(runtime, replay_request, PREVIEW_FILES)
        return replay_document(runtime, begin_replay(runtime, replay_request, run).replay_id)

    return await begun(request, token, "replay", made, is_costly=True)


@router.post("/replays/{replay}/{word}", summary="Pause, resume or cancel a replay")
async def change(
    request: Request,
    token: Operator,
    replay: Annotated[str, Path(description="Its id, or the beginning.")],
    word: Annotated[Literal["pause", "resume", "cancel"], Path(description="What is wanted.")],
) -> Response:
    """Pause a replay, have it go on, or end it; the batch under way is finished."""

    def changed(runtime: Runtime) -> dict[str, Any]:
        name = find_replay(runtime, replay).replay_id
        does = {"pause": pause_replay, "resume": resume_replay, "cancel": cancel_replay}[word]
        done = does(runtime, name)
        return {"replay_id": name, "state": find_replay(runtime, name).state, "changed": done}

    return await (begun(request, token, "replay", changed) if word == "resume" else once(request, token, changed))
