"""Checks the forms that the page receives: their origin, their size, and the user's rights."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response

from eventbridge.api.access import limit_to_owners
from eventbridge.api.documents import run_for_caller
from eventbridge.api.operator_calls import record_status
from eventbridge.api.page.render import FormRefused
from eventbridge.api.page.session import Viewer, check_origin, root, viewer
from eventbridge.api.payloads import check_conditions, require_payloads
from eventbridge.api.refusal import CallRefused, refusal_of
from eventbridge.control.actions import note_action
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.trace.explain import body_of_event

#: The maximum size of a form, which may contain a pasted event.
MAX_FORM_BYTES = 2 * 1_048_576
#: The maximum number of fields; no form of the page has nearly as many.
_MAX_FIELDS = 100


@dataclass(frozen=True)
class SubmittedForm:
    """A submitted form: its user, and its fields by name; a missing field is ""."""

    viewer: Viewer
    fields: dict[str, str]

    def __getitem__(self, name: str) -> str:
        """Return a field."""
        return self.fields.get(name, "").strip()


#: The fields of forms whose names are keywords of Python.
_NAMES = {"since": "from", "until": "to"}
_Form = TypeVar("_Form")


def read_fields(kind: type[_Form], submitted: SubmittedForm) -> _Form:
    """Return the dataclass of a form with the fields that were sent."""
    return kind(**{each.name: submitted[_NAMES.get(each.name, each.name)] for each in dataclass_fields(kind)})  # type: ignore[arg-type]


def form_values(form: Any) -> dict[str, str]:
    """Return the fields of the dataclass of a form, by their names in the form."""
    return {_NAMES.get(name, name): value for name, value in vars(form).items()}


def run_form(
    request: Request, do: Callable[[Runtime], Any], template: str, values: Callable[[Runtime], dict[str, Any]]
) -> Any:
    """Return the result of `do`. Raises FormRefused for a wrong value, with the page of `template` and `values`.

    Raises CallRefused for any other refusal.
    """
    try:
        return run_for_caller(request, do)
    except CallRefused as reason:
        if reason.status != HTTPStatus.BAD_REQUEST:
            raise
        raise FormRefused(reason, template, run_for_caller(request, values)) from None


async def submitted_form(request: Request) -> SubmittedForm:
    """Return a form of the page. Raises CallRefused unless it provably comes from the page and from this login."""
    check_origin(request, proven=True)
    found = await viewer(request)
    fields = await read_form(request, MAX_FORM_BYTES)
    if not hmac.compare_digest(fields.get("key", "").encode(), found.form_key.encode()):
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            "This form belongs to another login, and nothing was changed. Load the page again",
        )
    check_conditions(request, fields)
    return SubmittedForm(found, fields)


async def operator_form(request: Request) -> AsyncIterator[SubmittedForm]:
    """Yield the form of a user who may make changes, and record its result as an action; else raises CallRefused."""
    submitted = await submitted_form(request)
    if not submitted.viewer.can_operate:
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"{submitted.viewer.name} has read-only access: changes need the scope operate or, in Airflow, the "
            "permission to trigger eventbridge_redrive_dead_letters. Nothing was changed",
        )
    limit_to_owners(request, submitted.viewer.acts_for)
    call = f"{request.method} {request.url.path}"
    note = partial(note_action, by=f"page, {submitted.viewer.name}", call=call, arguments=submitted.fields)
    number = await asyncio.to_thread(run_for_caller, request, note)
    try:
        yield submitted
    except Exception as error:
        await asyncio.to_thread(record_status, request, number, refusal_of(request, error).status)
        raise
    await asyncio.to_thread(record_status, request, number, HTTPStatus.OK)


#: The result is recorded before the response is sent, so that the next page shows it.
OperatorForm = Annotated[SubmittedForm, Depends(operator_form, scope="function")]


async def read_form(request: Request, max_bytes: int) -> dict[str, str]:
    """Return the fields of a form. Raises CallRefused if it has more than `max_bytes` bytes, or too many fields."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > max_bytes:
            detail = f"The form has more than {max_bytes:,} bytes. Nothing was changed"
            raise CallRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    try:
        found = parse_qs(content.decode("utf-8", "replace"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        detail = f"The form has more than {_MAX_FIELDS} fields. Nothing was changed"
        raise CallRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail) from None
    # the last value: a ticked box follows its hidden field
    return {name: values[-1] for name, values in found.items()}


def archived_event(request: Request, runtime: Runtime, event_id: str) -> str:
    """Return the archived event to fill a form with; "" if no id is given or the event is no longer readable.

    Raises CallRefused if the user may not see payloads.
    """
    if not event_id:
        return ""
    require_payloads(request)
    return body_of_event(runtime, event_id) or ""


def redirect_to(request: Request, path: str) -> Response:
    """Return a redirect to a path under the page's root."""
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"location": f"{root(request)}{path}"})
