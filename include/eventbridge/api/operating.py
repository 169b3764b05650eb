"""What can be changed: what the command line does to rules, targets and dead letters, by the same functions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from eventbridge.api.access import who
from eventbridge.api.json_call import JsonCall
from eventbridge.api.once import RESPONSES, Operator, begun, once, run_of
from eventbridge.api.payloads import shows_payloads
from eventbridge.errors import UserError
from eventbridge.stages.dead_letters.selection import Selection, WrittenSelection
from eventbridge.stages.operate.overrides import Action, operate
from eventbridge.stages.redrive.account import find_redrive, redrive_document, survey_document
from eventbridge.stages.redrive.marks import Marks
from eventbridge.stages.redrive.plan import begin_redrive, survey
from eventbridge.stages.runtime.runtime import Runtime

router = APIRouter(route_class=JsonCall, default_response_class=Response, responses=RESPONSES)


class OverrideCall(BaseModel):
    """What is wanted of a rule, or of one of its targets."""

    model_config = ConfigDict(extra="forbid")

    action: Action
    rule: str
    target: str = ""
    value: str = Field("", description="The priority, or a rate such as 10/s.")


class RedriveCall(BaseModel):
    """Which dead letters are delivered again, and how; times are ISO 8601, or an age such as 2h."""

    model_config = ConfigDict(extra="forbid")

    rule: str = ""
    target: str = ""
    reason: str = ""
    error: str = Field("", description="Text in the detail, or in an attempt's error.")
    since: str = ""
    until: str = ""
    names: list[str] = Field([], max_length=1_000, description="Delivery ids, or where events lie.")
    everything: bool = Field(False, description="Required if nothing else chooses.")
    rate: float | None = Field(None, description="At most so many a second, 0.1 or more.")
    retransform: bool = Field(False, description="Route the events through today's rules, under new ids.")
    again: bool = Field(False, description="Also those that were redriven before.")
    dry_run: bool = Field(False, description="Only say what would be taken, and what not.")

    def selection(self, runtime: Runtime, request: Request) -> Selection:
        """Return which dead letters that is; raises UserError."""
        times = (self.since, self.until)
        wanted = WrittenSelection(self.rule, self.target, self.reason, self.error, *times, self.names)
        found = wanted.read(runtime.ledger.now(), payloads=shows_payloads(request))
        if not found.chooses and not self.everything:
            raise UserError("nothing chooses dead letters. Fill in what does, or set everything")
        return found


@router.post("/operate", summary="Pause, resume, disable, enable a rule or a target")
async def set_override(request: Request, token: Operator, call: OverrideCall) -> Response:
    """Do what an operator wants, in the name of the token, and response what it came to."""
    by = who(request, token)
    return await once(
        request, token, lambda runtime: operate(runtime, call.action, call.rule, call.target, call.value, by=by)
    )


@router.post("/redrives", summary="Deliver dead letters again")
async def begin(request: Request, token: Operator, call: RedriveCall) -> Response:
    """Record a redrive and return it: a DAG run, or `dead-letters redrive --resume`, delivers it. Or the dry run."""
    run = await run_of(request, token)

    def made(runtime: Runtime) -> dict[str, Any]:
        wanted, how = call.selection(runtime, request), {"retransform": call.retransform, "again": call.again}
        if call.dry_run:
            return survey_document(survey(runtime, wanted, **how))
        redrive_request = begin_redrive(runtime, wanted, run, rate=call.rate, **how)
        return redrive_document(redrive_request, Marks(runtime).counts(redrive_request))

    return await begun(request, token, "redrive", made, is_costly=True)


@router.post("/redrives/{redrive}/cancel", summary="Cancel a redrive")
async def cancel(
    request: Request, token: Operator, redrive: Annotated[str, Path(description="Its id, or the beginning.")]
) -> Response:
    """Plan no further batch of a redrive; the one under way is finished."""

    def cancelled(runtime: Runtime) -> dict[str, Any]:
        found = find_redrive(runtime, redrive)
        changed = runtime.ledger.end_redrive(found.redrive_id, "cancelled")
        state = runtime.ledger.redrive(found.redrive_id).state
        return {"redrive_id": found.redrive_id, "state": state, "cancelled": changed}

    return await once(request, token, cancelled)
