"""Serves the forms that pause, resume, enable and test rules and targets, and the page that shows a request."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.call_pools import asks_buses, reads_store, run_at_target, run_expensive
from eventbridge.api.documents import run_for_caller
from eventbridge.api.page import values
from eventbridge.api.page.forms import (
    OperatorForm,
    SubmittedForm,
    archived_event,
    redirect_to,
    run_form,
    submitted_form,
)
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.api.payloads import can_see_payloads, require_payloads, visible_response_head
from eventbridge.control.overrides import enable_target, operate
from eventbridge.control.release import release_rule
from eventbridge.control.try_pattern import try_pattern
from eventbridge.control.try_target import check_target, curl_call, send_event
from eventbridge.errors import NotFoundError, TransformFailed, UserError
from eventbridge.model.why import Step, Why
from eventbridge.rules.find import find_rule, find_target
from eventbridge.rules.sent import changed_rule_text, transform_text, yaml_text
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.event_search import EventQuery, event_page
from eventbridge.views.requests import find_sent_request
from eventbridge.views.rules import rule_text
from eventbridge.views.trace.explain import first_body, why

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]
#: The number of the bus's newest events that the test of a rule offers.
_NEWEST_EVENTS = 50


@router.post("/rules/{name}/operate")
@asks_buses
def operate_rule(request: Request, submitted: OperatorForm, name: str) -> Response:
    """Apply the action of a button to a rule, or to one of its targets."""
    action, target = submitted["action"], submitted["target"]

    def apply(runtime: Runtime) -> None:
        if action == "enable target":
            find_target(runtime.rule_set(), name, target)
            enable_target(runtime, name, target)
        elif action == "release rule":
            find_rule(runtime.rule_set(), name)
            release_rule(runtime, name)
        else:
            operate(runtime, action, name, target, submitted["value"], by=submitted.viewer.name)

    on_target = submitted["back"] == "target" and target

    def page(runtime: Runtime) -> dict[str, Any]:
        if on_target:
            return {"viewer": submitted.viewer, "rate": submitted["value"]} | values.target(
                runtime, request, name, target
            )
        return {"viewer": submitted.viewer} | values.rule(runtime, request, name)

    run_form(request, apply, "target" if on_target else "rule", page)
    rule = quote(name, safe="")
    path = f"/targets/{rule}/{quote(target, safe='')}" if on_target else f"/rules/{rule}"
    return redirect_to(request, f"{path}?{urlencode({'done': action, 'of': target})}")


@router.get("/request")
@reads_store
def request_of_delivery(
    request: Request,
    found: _Viewer,
    rule: str,
    target: str,
    event_id: Annotated[str, Query(alias="id")],
    delivery: str = "",
    attempt: int = 0,
) -> Response:
    """Return the request to a target for an event beside the responses, and the current rule's request as curl.

    The response to `attempt` comes first; without it, the last one.
    """

    def load(runtime: Runtime) -> dict[str, Any]:
        require_payloads(request)
        trace = why(runtime, event_id, max_unmatched=0, rule=rule)
        deliveries = [one for each in trace.events for one in each.deliveries if one.target == target]
        wanted = delivery or (deliveries[-1].delivery_id if deliveries else "")
        then = find_sent_request(runtime, deliveries, wanted)
        body = first_body(runtime, trace)
        attempts = _attempts(trace, wanted, attempt)
        try:
            if body is None:
                raise NotFoundError(f"the event {event_id} is no longer in the archive, or cannot be read")
            made = curl_call(runtime, rule, target, body.encode("utf-8", "replace"), delivery)
        except (UserError, TransformFailed) as error:
            if then is not None:
                return {"then": then, "attempts": attempts, "made": None, "message": str(error)}
            if isinstance(error, TransformFailed):
                raise UserError(f"The request cannot be rendered: {error}") from None
            raise
        return {"then": then, "attempts": attempts, "made": made}

    values = {"viewer": found, "event_id": event_id, "rule": rule, "target": target}
    return render(request, "request", values | run_for_caller(request, load))


def _attempts(trace: Why, delivery: str, first: int) -> list[Step]:
    """Return the attempts at a delivery: the one numbered `first`, then the others, the last one first."""
    found = [
        step
        for each in trace.events
        for step in each.steps
        if step.what == "attempt" and step.delivery_id == delivery and step.attempt
    ]
    return sorted(found, key=lambda each: (each.attempt == first, each.attempt or 0), reverse=True)


@router.get("/rules/{name}/test")
@reads_store
def form_to_test(
    request: Request, found: _Viewer, name: str, event_id: Annotated[str, Query(alias="event")] = "", target: str = ""
) -> Response:
    """Return the form that tests a pattern and a transform on an event, pasted or from the archive."""

    def load(runtime: Runtime) -> dict[str, Any]:
        return _playground(runtime, request, name, {"event": event_id, "target": target})

    return _test(request, found, name, run_for_caller(request, load))


@router.post("/rules/{name}/test")
async def tested(request: Request, submitted: Annotated[SubmittedForm, Depends(submitted_form)], name: str) -> Response:
    """Return which conditions an event meets, and the request that each target would get."""

    def tried(runtime: Runtime) -> dict[str, Any]:
        values = _playground(runtime, request, name, submitted.fields)
        pattern, transform, target = submitted["pattern"], values["transform"], values["target"]
        body = values["body"].encode("utf-8", "replace")
        try:
            result = try_pattern(runtime, name, pattern, body, target=target, transform=transform)
            return values | {"tried": result, "candidate": _candidate(values, name, pattern)}
        except UserError as error:
            return values | {"message": str(error)}

    # rendered in the same thread, because a large pattern makes a large page
    return await run_expensive(request, lambda: _test(request, submitted.viewer, name, run_for_caller(request, tried)))


def _test(request: Request, found: Viewer, name: str, values: dict[str, Any]) -> Response:
    return render(request, "test", {"viewer": found, "rule": name} | values)


def _playground(runtime: Runtime, request: Request, name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the playground, and what its form offers. Raises NotFoundError for an unknown rule.

    An event or a target that was chosen after the form was loaded fills its field. The first form has the newest event.
    """
    rules = runtime.rule_set()
    rule = find_rule(rules, name)
    names = list(rule.targets)
    target = given.get("target") or names[0]
    own_transform = transform_text(find_target(rules, name, target).transform)
    shown = can_see_payloads(request)
    newest = event_page(runtime, EventQuery(bus=rule.bus), _NEWEST_EVENTS).events if shown else ()
    event_id, body = given.get("event", ""), given.get("body", "")
    if newest and not event_id and "body" not in given:
        event_id = newest[0].event_id
    if event_id and event_id != given.get("shown_event"):
        body = archived_event(request, runtime, event_id)
    own_pattern = yaml_text(rule.pattern)
    return {
        "pattern": given.get("pattern") or own_pattern,
        "own_pattern": own_pattern,
        "targets": names,
        "target": target,
        "transform": given.get("transform") if target == given.get("shown_target") else own_transform,
        "own_transform": own_transform,
        "event": event_id,
        "body": body,
        "newest": newest,
        "written": rule_text(runtime, rules, name),
    }


def _candidate(values: dict[str, Any], name: str, pattern: str) -> str | None:
    """Return the change as a rule file or, if the file of the rule is unknown, as lines of one; None without one."""
    pattern = pattern if pattern.strip() != values["own_pattern"].strip() else ""
    transform = values["transform"] if values["transform"].strip() != values["own_transform"].strip() else ""
    if not pattern and not transform:
        return None
    written = values["written"]
    whole = changed_rule_text(written.text, name, pattern, values["target"], transform) if written is not None else None
    parts = [
        f"{word}:\n{indent(text, '  ')}\n" for word, text in (("pattern", pattern), ("transform", transform)) if text
    ]
    return "".join(parts) if whole is None else whole


@router.get("/targets/{rule}/{name}/try")
@reads_store
def form_to_try(
    request: Request, found: _Viewer, rule: str, name: str, event_id: Annotated[str, Query(alias="event")] = ""
) -> Response:
    """Return the form that checks a target, or sends it one event, pasted or from the archive."""

    def load(runtime: Runtime) -> dict[str, Any]:
        find_target(runtime.rule_set(), rule, name)
        return {"body": archived_event(request, runtime, event_id)}

    values = {"viewer": found, "rule": rule, "target": name}
    return render(request, "try", values | run_for_caller(request, load))


@router.post("/targets/{rule}/{name}/try")
async def try_target(request: Request, submitted: OperatorForm, rule: str, name: str) -> Response:
    """Check a target, or send it an event, and return the form with the result."""

    def run_try(runtime: Runtime) -> dict[str, Any]:
        find_target(runtime.rule_set(), rule, name)
        try:
            if submitted["do"] == "check":
                return {"reached": check_target(runtime, rule, name)}
            response = send_event(runtime, rule, name, submitted["body"].encode("utf-8", "replace"))
        except UserError as error:
            return {"message": str(error)}
        except TransformFailed as error:
            return {"message": f"The transform fails for this event: {error}"}
        head = response.response_head.decode("utf-8", "replace")
        return {"response": response, "head": visible_response_head(request, head)}

    values = {"viewer": submitted.viewer, "rule": rule, "target": name, "body": submitted["body"]}
    return render(request, "try", values | await run_at_target(request, lambda: run_for_caller(request, run_try)))
