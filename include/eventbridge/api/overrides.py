"""Serves the calls that pause, disable or slow down rules and targets, and that clear these overrides."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from eventbridge.api.access import caller_name
from eventbridge.api.call_pools import run_at_buses
from eventbridge.api.descriptions import described
from eventbridge.api.operator_calls import RESPONSES, Operator, respond_once
from eventbridge.api.routes import JsonCall
from eventbridge.control.overrides import Action, OverrideResult, operate
from eventbridge.model.api import V1, ApiToken
from eventbridge.rules.vocabulary import PRIORITIES

router = APIRouter(prefix=V1, route_class=JsonCall, default_response_class=Response, responses=RESPONSES)

_Rule = Annotated[str, Path(description="The name of a rule.")]
_Target = Annotated[str, Path(description="The name of a target of the rule.")]
_RULE = "/rules/{rule}"
_TARGET = "/targets/{rule}/{target}"


class PriorityCall(BaseModel):
    """The priority of a rule."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"priority": "high"}]})

    priority: str = Field(description=f"{', '.join(PRIORITIES[:-1])} or {PRIORITIES[-1]}.")


class RateCall(BaseModel):
    """The maximum rate of a target."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"rate": "10/s"}]})

    rate: str = Field(description="Requests in a time, such as 10/s or 600/m.")


@router.post(f"{_RULE}/pause", summary="Pause a rule", **described("pause_rule", "rules", OverrideResult))
async def pause_rule(request: Request, token: Operator, rule: _Rule) -> Response:
    """Keep the deliveries of a rule pending until it is resumed."""
    return await _overridden(request, token, "pause rule", rule)


@router.post(f"{_RULE}/resume", summary="Resume a rule", **described("resume_rule", "rules", OverrideResult))
async def resume_rule(request: Request, token: Operator, rule: _Rule) -> Response:
    """Clear the pause of a rule; its pending deliveries become due."""
    return await _overridden(request, token, "resume rule", rule)


@router.post(f"{_RULE}/disable", summary="Disable a rule", **described("disable_rule", "rules", OverrideResult))
async def disable_rule(request: Request, token: Operator, rule: _Rule) -> Response:
    """Match no more events of this rule until it is enabled; its pending deliveries wait."""
    return await _overridden(request, token, "disable rule", rule)


@router.post(f"{_RULE}/enable", summary="Enable a rule", **described("enable_rule", "rules", OverrideResult))
async def enable_rule(request: Request, token: Operator, rule: _Rule) -> Response:
    """Clear the disabling of a rule; its pending deliveries become due."""
    return await _overridden(request, token, "enable rule", rule)


@router.put(
    f"{_RULE}/priority", summary="Set the priority of a rule", **described("set_rule_priority", "rules", OverrideResult)
)
async def set_rule_priority(request: Request, token: Operator, rule: _Rule, call: PriorityCall) -> Response:
    """Set a priority that applies instead of the rule file's."""
    return await _overridden(request, token, "set priority", rule, value=call.priority)


@router.delete(
    f"{_RULE}/priority",
    summary="Clear the priority of a rule",
    **described("clear_rule_priority", "rules", OverrideResult),
)
async def clear_rule_priority(request: Request, token: Operator, rule: _Rule) -> Response:
    """Let the priority of the rule file apply again."""
    return await _overridden(request, token, "clear priority", rule)


@router.post(f"{_TARGET}/pause", summary="Pause a target", **described("pause_target", "targets", OverrideResult))
async def pause_target(request: Request, token: Operator, rule: _Rule, target: _Target) -> Response:
    """Keep the deliveries of a target pending until it is resumed."""
    return await _overridden(request, token, "pause target", rule, target)


@router.post(f"{_TARGET}/resume", summary="Resume a target", **described("resume_target", "targets", OverrideResult))
async def resume_target(request: Request, token: Operator, rule: _Rule, target: _Target) -> Response:
    """Clear the pause of a target; its pending deliveries become due."""
    return await _overridden(request, token, "resume target", rule, target)


@router.put(
    f"{_TARGET}/rate", summary="Set the rate of a target", **described("set_target_rate", "targets", OverrideResult)
)
async def set_target_rate(request: Request, token: Operator, rule: _Rule, target: _Target, call: RateCall) -> Response:
    """Set a maximum rate that applies instead of the rule file's."""
    return await _overridden(request, token, "set rate", rule, target, value=call.rate)


@router.delete(
    f"{_TARGET}/rate", summary="Clear the rate of a target", **described("clear_target_rate", "targets", OverrideResult)
)
async def clear_target_rate(request: Request, token: Operator, rule: _Rule, target: _Target) -> Response:
    """Let the rate of the rule file apply again."""
    return await _overridden(request, token, "clear rate", rule, target)


async def _overridden(
    request: Request, token: ApiToken, action: Action, rule: str, target: str = "", *, value: str = ""
) -> Response:
    """Carry out an action for the caller, and return its result; the change is published as an event."""
    by = caller_name(request, token)
    return await respond_once(
        request, token, lambda runtime: operate(runtime, action, rule, target, value, by=by), within=run_at_buses
    )
