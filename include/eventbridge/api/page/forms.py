"""The forms of the page that change something: from the page itself, by somebody who may."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response

from eventbridge.api.once import note_status
from eventbridge.api.owners import limit
from eventbridge.api.page.render import FormRefused
from eventbridge.api.page.session import Viewer, check_origin, root, viewer
from eventbridge.api.payloads import check_conditions, check_payloads
from eventbridge.api.reading import run_for_caller
from eventbridge.api.refusal import Refused, refusal_of
from eventbridge.stages.operate.actions import note_action
from eventbridge.stages.operate.event_body import body_of_event
from eventbridge.stages.runtime.runtime import Runtime

#: An event that somebody pastes may be as large as one that is published.
MOST_FORM_BYTES = 2 * 1_048_576
#: No form of the page has nearly as many.
_MOST_FIELDS = 100


@dataclass(frozen=True)
class Act:
    """A form that somebody sent, by the names of its fields; one that is not there is ""."""

    viewer: Viewer
    fields: dict[str, str]

    def __getitem__(self, name: str) -> str:
        """Return a field."""
        return self.fields.get(name, "").strip()


def run_form(
    request: Request, do: Callable[[Runtime], Any], template: str, values: Callable[[Runtime], dict[str, Any]]
) -> Any:
    """Return what `do` returns; raises FormRefused for a wrong value, with the page that `template` and `values` make.

    Raises Refused for whatever else is refused.
    """
    try:
        return run_for_caller(request, do)
    except Refused as reason:
        if reason.status != HTTPStatus.BAD_REQUEST:
            raise
        raise FormRefused(reason, template, run_for_caller(request, values)) from None


async def sent(request: Request) -> Act:
    """Return a form of the page; raises Refused unless the page itself is shown to have sent it, for this login."""
    check_origin(request, proven=True)
    found = await viewer(request)
    fields = await read_form(request, MOST_FORM_BYTES)
    if not hmac.compare_digest(fields.get("key", "").encode(), found.form_key.encode()):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "This form is of another login, and nothing was changed. Load the page again",
        )
    check_conditions(request, fields)
    return Act(found, fields)


async def acting(request: Request) -> AsyncIterator[Act]:
    """Yield a form of somebody who may change how things stand, and note what response it got; raises Refused."""
    act = await sent(request)
    if not act.viewer.operates:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"{act.viewer.name} may look, but change nothing: that takes the scope operate or, in Airflow, the "
            "permission to trigger eventbridge_redrive_dead_letters. Nothing was changed",
        )
    limit(request, act.viewer.acts_for)
    call = f"{request.method} {request.url.path}"
    note = partial(note_action, by=f"page, {act.viewer.name}", call=call, asked=act.fields)
    number = await asyncio.to_thread(run_for_caller, request, note)
    try:
        yield act
    except Exception as error:
        await asyncio.to_thread(note_status, request, number, refusal_of(request, error).status)
        raise
    await asyncio.to_thread(note_status, request, number, HTTPStatus.OK)


#: Noted before its response is sent: who looks then sees it.
Acting = Annotated[Act, Depends(acting, scope="function")]


async def read_form(request: Request, most: int) -> dict[str, str]:
    """Return the fields of a form; raises Refused for one that is longer than `most` bytes, or has too many fields."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            said = f"The form has more than {most:,} bytes. Nothing was changed"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
    try:
        found = parse_qs(content.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        said = f"The form has more than {_MOST_FIELDS} fields. Nothing was changed"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said) from None
    # the last one: a box that is ticked comes behind its hidden field
    return {name: values[-1] for name, values in found.items()}


def landed_body(request: Request, runtime: Runtime, event_id: str) -> str:
    """Return the event that a form is to be filled with, as it lies in the archive; "" for no id.

    Raises Refused for somebody who may not see payloads.
    """
    if not event_id:
        return ""
    check_payloads(request)
    return body_of_event(runtime, event_id) or ""


def sent_to(request: Request, path: str) -> Response:
    """Return the response that has a browser load a path below the page's root."""
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"location": f"{root(request)}{path}"})
