"""Calls that change rules, targets and dead letters, with the functions of the command line."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from eventbridge.api.access import caller_name
from eventbridge.api.json_call import JsonCall
from eventbridge.api.operator_calls import RESPONSES, Operator, record_name, respond_once, start_once
from eventbridge.api.payloads import can_see_payloads
from eventbridge.control.overrides import Action, operate
from eventbridge.dead_letters.redrive_account import find_redrive, redrive_document, survey_document
from eventbridge.dead_letters.redrive_marks import Marks
from eventbridge.dead_letters.redrive_plan import begin_redrive, survey
from eventbridge.dead_letters.selection import Selection, WrittenSelection
from eventbridge.errors import UserError
from eventbridge.runtime.runtime import Runtime

router = APIRouter(route_class=JsonCall, default_response_class=Response, responses=RESPONSES)


class OverrideCall(BaseModel):
    """An action on a rule, or on one of its targets."""

    model_config = ConfigDict(extra="forbid")

    action: Action
    rule: str
    target: str = ""
    value: str = Field("", description="The priority, or a rate such as 10/s.")


class RedriveCall(BaseModel):
    """The dead letters to deliver again, and how. Times are ISO 8601, or an age such as 2h."""

    model_config = ConfigDict(extra="forbid")

    rule: str = ""
    target: str = ""
    reason: str = ""
    error: str = Field("", description="Only dead letters with this text in the detail or in an attempt's error.")
    since: str = ""
    until: str = ""
    names: list[str] = Field([], max_length=1_000, description="Delivery ids, or positions of events.")
    everything: bool = Field(False, description="Deliver all dead letters again; required without a filter.")
    rate: float | None = Field(None, description="Deliveries a second at most, 0.1 or more.")
    retransform: bool = Field(False, description="Route the events through the rules in force, under new delivery ids.")
    again: bool = Field(False, description="Include dead letters that were redriven before.")
    dry_run: bool = Field(False, description="Only report what would be delivered again, and what not.")

    def selection(self, runtime: Runtime, request: Request) -> Selection:
        """Return the selection of dead letters; raises UserError."""
        times = (self.since, self.until)
        wanted = WrittenSelection(self.rule, self.target, self.reason, self.error, *times, self.names)
        found = wanted.read(runtime.ledger.now(), payloads=can_see_payloads(request))
        if not found.chooses and not self.everything:
            raise UserError(
                "no filter given. Set rule, target, reason, error, since, until or names, or set everything to true"
            )
        return found


@router.post("/operate", summary="Pause, resume, disable, enable a rule or a target")
async def set_override(request: Request, token: Operator, call: OverrideCall) -> Response:
    """Apply an action in the name of the token, and return its result."""
    by = caller_name(request, token)
    return await respond_once(
        request, token, lambda runtime: operate(runtime, call.action, call.rule, call.target, call.value, by=by)
    )


@router.post("/redrives", summary="Deliver dead letters again")
async def begin(request: Request, token: Operator, call: RedriveCall) -> Response:
    """Record a redrive and return it, or return the dry run.

    A DAG run, or `eventbridge dead-letters redrive --resume`, delivers it.
    """
    run = await record_name(request, token)

    def made(runtime: Runtime) -> dict[str, Any]:
        wanted, how = call.selection(runtime, request), {"retransform": call.retransform, "again": call.again}
        if call.dry_run:
            return survey_document(survey(runtime, wanted, **how))
        redrive_request = begin_redrive(runtime, wanted, run, rate=call.rate, **how)
        return redrive_document(redrive_request, Marks(runtime).counts(redrive_request))

    return await start_once(request, token, "redrive", made, is_costly=True)


@router.post("/redrives/{redrive}/cancel", summary="Cancel a redrive")
async def cancel(
    request: Request, token: Operator, redrive: Annotated[str, Path(description="The id, or the beginning of it.")]
) -> Response:
    """Cancel a redrive: no further batch is planned, and the one in progress is finished."""

    def cancelled(runtime: Runtime) -> dict[str, Any]:
        found = find_redrive(runtime, redrive)
        changed = runtime.ledger.end_redrive(found.redrive_id, "cancelled")
        state = runtime.ledger.redrive(found.redrive_id).state
        return {"redrive_id": found.redrive_id, "state": state, "cancelled": changed}

    return await respond_once(request, token, cancelled)
