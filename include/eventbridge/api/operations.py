"""Serves the calls that change or test rules and targets, or redrive dead letters, like the command line."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from eventbridge.api import models
from eventbridge.api.access import reader
from eventbridge.api.call_pools import run_at_buses, run_at_target, run_expensive
from eventbridge.api.descriptions import described
from eventbridge.api.documents import Accepted, document_response
from eventbridge.api.operator_calls import RESPONSES, Operator, document_of, record_name, respond_once, start_once
from eventbridge.api.payloads import can_see_payloads, require_payloads, visible_response_head
from eventbridge.api.routes import JsonCall
from eventbridge.control.check_rules import check_file as check_rule_file
from eventbridge.control.overrides import enable_target
from eventbridge.control.release import Released, release_rule
from eventbridge.control.try_pattern import PatternTried, try_pattern
from eventbridge.control.try_target import check_target, response_document, send_event
from eventbridge.dead_letters.redrive_plan import begin_redrive, survey
from eventbridge.dead_letters.redrives import Marks, find_redrive, redrive_document, survey_document
from eventbridge.dead_letters.selection import Selection, WrittenSelection
from eventbridge.errors import NotFoundError, TransformFailed, UserError
from eventbridge.event.json_document import write_document
from eventbridge.model.api import V1
from eventbridge.rules.find import find_rule, find_target
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.trace.explain import body_of_event

router = APIRouter(prefix=V1, route_class=JsonCall, default_response_class=Response, responses=RESPONSES)


_Redrive = Annotated[str, Path(description="The id, or the beginning of it.")]
_Rule = Annotated[str, Path(description="The name of a rule.")]
_Target = Annotated[str, Path(description="The name of a target of the rule.")]


class RedriveCall(BaseModel):
    """The dead letters to deliver again, and how. Times are ISO 8601, or an age such as 2h."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"rule": "big-orders", "from": "2h", "dry_run": True}]}
    )

    rule: str = ""
    target: str = ""
    reason: str = ""
    error: str = Field("", description="Only dead letters with this text in the detail or in an attempt's error.")
    since: str = Field("", alias="from")
    until: str = Field("", alias="to")
    names: list[str] = Field([], max_length=1_000, description="Delivery ids, or positions of events.")
    everything: bool = Field(False, description="Deliver all dead letters again; required without a filter.")
    rate: float | None = Field(
        None, allow_inf_nan=False, description="The maximum number of deliveries per second, 0.1 or more."
    )
    retransform: bool = Field(False, description="Route the events through the rules in force, under new delivery ids.")
    again: bool = Field(False, description="Include dead letters that were redriven before.")
    dry_run: bool = Field(False, description="Only report what would be delivered again, and what would be skipped.")

    def selection(self, runtime: Runtime, request: Request) -> Selection:
        """Return the selection of dead letters. Raises UserError for an invalid value, or without a filter."""
        times = (self.since, self.until)
        wanted = WrittenSelection(self.rule, self.target, self.reason, self.error, *times, self.names)
        found = wanted.read(runtime.ledger.now(), payloads=can_see_payloads(request))
        if not found.chooses and not self.everything:
            raise UserError(
                "no filter given. Set rule, target, reason, error, from, to or names, or set everything to true"
            )
        return found


@router.post(
    "/redrives",
    summary="Deliver dead letters again",
    **described("start_redrive", "dead letters", models.RedriveSurvey, accepted=models.Redrive),
)
async def begin(request: Request, token: Operator, call: RedriveCall) -> Response:
    """Record a redrive and return it, or return the dry run.

    A DAG run, or `eventbridge redrives resume`, delivers it.
    """
    run = await record_name(request, token)

    def start(runtime: Runtime) -> dict[str, Any]:
        wanted, how = call.selection(runtime, request), {"retransform": call.retransform, "again": call.again}
        if call.dry_run:
            return survey_document(survey(runtime, wanted, **how))
        redrive_request = begin_redrive(runtime, wanted, run, rate=call.rate, **how)
        return Accepted(redrive_document(redrive_request, Marks(runtime).counts(redrive_request)))

    return await start_once(request, token, "redrive", start, within=run_expensive)


@router.post(
    "/redrives/{redrive}/cancel",
    summary="Cancel a redrive",
    **described("cancel_redrive", "dead letters", models.RedriveCancelled),
)
async def cancel(request: Request, token: Operator, redrive: _Redrive) -> Response:
    """Cancel a redrive: no further batch is planned, and the one in progress is finished."""

    def cancelled(runtime: Runtime) -> dict[str, Any]:
        found = find_redrive(runtime, redrive)
        changed = runtime.ledger.redrives.end(found.redrive_id, "cancelled")
        state = runtime.ledger.redrives.get(found.redrive_id).state
        return {"redrive_id": found.redrive_id, "state": state, "cancelled": changed}

    return await respond_once(request, token, cancelled)


class EventCall(BaseModel):
    """An event, given or taken from the archive by its id."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"event_id": "1"}]})

    event: dict[str, Any] | None = Field(None, description="A CloudEvent in structured JSON.")
    event_id: str = Field("", description="Instead, the id of an archived event; needs the scope `payloads`.")


class TestCall(EventCall):
    """An event, and optionally a pattern to test on it."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"event_id": "1", "pattern": {"type": ["order.placed"]}}]}
    )

    pattern: dict[str, Any] | None = Field(None, description="A pattern to use instead of the rule's own.")


class CheckCall(BaseModel):
    """A rule file to check."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"file": "orders.yaml", "content": "buses: {}"}]}
    )

    file: str = Field(max_length=500, description="Its path below the folder of rule files, such as orders.yaml.")
    content: str = Field(max_length=1_048_576, description="Its content, in YAML.")


class ReleaseCall(BaseModel):
    """Whether to release a rule, or only to skip one of its deliveries on hold."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    skip: str = Field(
        "", description="Instead of releasing the rule, dead-letter this delivery: its id, or the beginning of it."
    )


@router.post(
    "/rules/{rule}/test",
    summary="Test a pattern on an event",
    **described("test_rule", "rules", PatternTried),
    dependencies=[Depends(reader)],
)
async def test(request: Request, rule: _Rule, call: TestCall) -> Response:
    """Return which conditions an event meets, and what each target would be sent. Nothing is sent or stored."""
    content = await request.body()

    def tried(runtime: Runtime) -> Any:
        written = document_of(content)  # numbers as written
        pattern = write_document(written["pattern"]) if call.pattern is not None else ""
        return try_pattern(runtime, rule, pattern, body_of_call(request, runtime, call, written))

    return await run_expensive(request, lambda: document_response(request, tried))


@router.post(
    "/rules/check",
    summary="Check a rule file",
    **described("check_rule_file", "rules", models.RulesChecked),
    dependencies=[Depends(reader)],
)
async def check_file(request: Request, call: CheckCall) -> Response:
    """Return what `rules check` would report if this file, new or existing, had this content. Nothing is written."""
    content = call.content.encode("utf-8", "surrogatepass")

    def run_check(runtime: Runtime) -> Any:
        return check_rule_file(runtime, call.file, content)

    return await run_expensive(request, lambda: document_response(request, run_check))


@router.post("/rules/{rule}/release", summary="Release a rule on hold", **described("release_rule", "rules", Released))
async def release(request: Request, token: Operator, rule: _Rule, call: ReleaseCall) -> Response:
    """Release a rule that is on hold, and return the deliveries and deferred matches that are due now."""

    def released(runtime: Runtime) -> Any:
        find_rule(runtime.rule_set(), rule)
        return release_rule(runtime, rule, call.skip or None)

    return await respond_once(request, token, released)


@router.post(
    "/targets/{rule}/{target}/check",
    summary="Check a target",
    **described("check_target", "targets", models.TargetReached),
)
async def check(request: Request, token: Operator, rule: _Rule, target: _Target) -> Response:
    """Return whether the target can be reached, and the error if not.

    Sends no request to the target, except for its handshake.
    """

    def run_check(runtime: Runtime) -> dict[str, Any]:
        error = check_target(runtime, rule, target)
        return {"rule": rule, "target": target, "reached": error is None, "error": error}

    return await respond_once(request, token, run_check, within=run_at_target)


@router.post(
    "/targets/{rule}/{target}/send",
    summary="Send one event to a target",
    **described("send_event_to_target", "targets", models.TargetResponse),
)
async def send(request: Request, token: Operator, rule: _Rule, target: _Target, call: EventCall) -> Response:
    """Send the transformed event to the target once, and return its response. This does not count as a delivery.

    The beginning of the response needs the `payloads` scope: a target may repeat the payload.
    """
    content = await request.body()

    def run_send(runtime: Runtime) -> dict[str, Any]:
        written = document_of(content)  # numbers as written
        find_target(runtime.rule_set(), rule, target)
        try:
            response = send_event(runtime, rule, target, body_of_call(request, runtime, call, written))
        except TransformFailed as error:
            raise UserError(f"The transform fails for this event: {error}") from None
        found = response_document(rule, target, response)
        return found | {"response_head": visible_response_head(request, found["response_head"])}

    return await respond_once(request, token, run_send, within=run_at_target)


@router.post(
    "/targets/{rule}/{target}/enable",
    summary="Enable a target",
    **described("enable_target", "targets", models.TargetEnabled),
)
async def enable(request: Request, token: Operator, rule: _Rule, target: _Target) -> Response:
    """Enable a target that is disabled, degraded or paused by its response; its pending deliveries become due."""

    def enabled(runtime: Runtime) -> dict[str, Any]:
        find_target(runtime.rule_set(), rule, target)
        return {"rule": rule, "target": target, "released": enable_target(runtime, rule, target)}

    return await respond_once(request, token, enabled, within=run_at_buses)


def body_of_call(request: Request, runtime: Runtime, call: EventCall, written: dict[str, Any]) -> bytes:
    """Return the event of a call, which `written` has with its numbers as written, or the archived event that it names.

    Raises UserError unless the call has one of them, NotFoundError if the event is not in the archive, and CallRefused
    if the caller may not see payloads.
    """
    if (call.event is None) == (not call.event_id):
        raise UserError("give either event, or the event_id of an archived event")
    if call.event is not None:
        return write_document(written["event"]).encode("utf-8", "surrogatepass")
    require_payloads(request)
    body = body_of_event(runtime, call.event_id)
    if body is None:
        raise NotFoundError(f"the event {call.event_id} is no longer in the archive, or cannot be read")
    return body.encode("utf-8", "surrogatepass")
