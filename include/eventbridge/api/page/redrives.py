"""Serves the pages of redrives: the preview, the form to start one, the list with progress, and the cancel button."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.call_pools import reads_store, run_expensive
from eventbridge.api.documents import run_for_caller
from eventbridge.api.lists import page_of
from eventbridge.api.page.forms import OperatorForm, form_values, read_fields, redirect_to, run_form
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Gate, Viewer, viewer
from eventbridge.api.payloads import can_see_payloads, visible_selection
from eventbridge.api.refusal import CallRefused
from eventbridge.dead_letters.redrive_plan import Survey, begin_redrive, survey
from eventbridge.dead_letters.redrives import Marks, find_redrive, redrive_document, survey_document, visible_redrives
from eventbridge.dead_letters.selection import Selection, WrittenSelection
from eventbridge.errors import UserError
from eventbridge.runtime.runtime import Runtime

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]
_LISTED = 50
#: The maximum number of dead letters, and of causes, that one form redrives.
_MAX_NAMES: Final = 100
_MAX_CAUSES: Final = 20


@dataclass(frozen=True)
class RedriveForm:
    """The form of a redrive: which dead letters to deliver again, and how; a field that is not filled in is ""."""

    rule: str = ""
    target: str = ""
    reason: str = ""
    error: str = ""
    since: Annotated[str, Query(alias="from")] = ""
    until: Annotated[str, Query(alias="to")] = ""
    name: str = ""
    cause: str = ""
    rate: str = ""
    everything: str = ""
    retransform: str = ""
    again: str = ""

    def selections(self, runtime: Runtime, request: Request) -> list[Selection]:
        """Return the selections of dead letters: one for each cause or, without causes, one by the other fields.

        `name` may have several names, and `cause` several causes, each a query string, separated by blanks. Raises
        UserError for an invalid value, for too many, or without a filter.
        """
        names, causes = self.name.split(), self.cause.split()
        if len(names) > _MAX_NAMES or len(causes) > _MAX_CAUSES:
            raise UserError(f"choose at most {_MAX_NAMES} dead letters, or {_MAX_CAUSES} causes, at once")
        written = [self._cause(each) for each in causes]
        if not written:
            times = (self.since, self.until)
            written = [WrittenSelection(self.rule, self.target, self.reason, self.error, *times, names)]
        now, payloads = runtime.ledger.now(), can_see_payloads(request)
        found = [each.read(now, payloads=payloads) for each in written]
        if not all(each.chooses for each in found) and not self.everything:
            raise UserError("no filter given. Fill in a filter, or tick All")
        return found

    def _cause(self, text: str) -> WrittenSelection:
        given = dict(parse_qsl(text))
        rule, target, reason, error, since, until = map(given.get, ("rule", "target", "reason", "error", "from", "to"))
        return WrittenSelection(rule, target, reason, error, since, until)

    @property
    def causes(self) -> list[str]:
        """Each chosen cause in words."""
        each = (dict(parse_qsl(text)) for text in self.cause.split())
        return [f"{one.get('rule')}/{one.get('target')}: {one.get('reason')} {one.get('error', '')}" for one in each]

    def rate_per_second(self) -> float | None:
        """Return the rate, or None if it is unlimited. Raises UserError if it is not a number."""
        try:
            return float(self.rate) if self.rate else None
        except ValueError:
            raise UserError(f"{self.rate!r} is not a rate. Write a number of dead letters a second") from None


@router.get("/redrive")
async def preview(request: Request, found: _Viewer, form: Annotated[RedriveForm, Depends()]) -> Response:
    """Return the preview of a redrive with the form that starts it; changes nothing."""
    chosen = {name: " ".join(request.query_params.getlist(name)) for name in ("name", "cause")}
    form = replace(form, everything="" if any(chosen.values()) else form.everything, **chosen)
    values = await run_expensive(
        request, lambda: run_for_caller(request, lambda runtime: _preview(runtime, request, form))
    )
    return render(request, "redrive", {"viewer": found} | values)


def _preview(runtime: Runtime, request: Request, form: RedriveForm) -> dict[str, Any]:
    how = {"retransform": bool(form.retransform), "again": bool(form.again)}
    seen = Survey()
    for each in form.selections(runtime, request):
        one = survey(runtime, each, **how)
        seen.taken += one.taken
        seen.left += one.left
        seen.damaged |= one.damaged
    values: dict[str, Any] = {"survey": survey_document(seen), "damaged": [str(each) for each in seen.damaged.values()]}
    values |= {"causes": form.causes, "count": seen.taken.total()}
    try:
        form.rate_per_second()
    except UserError as error:  # the page shows the form with the wrong rate
        values["message"] = str(error)
    return values | {"chosen": form_values(form)}


@router.post("/redrive")
async def begin(request: Request, submitted: OperatorForm) -> Response:
    """Record a redrive and, if Airflow mounts the page, have Airflow deliver it."""
    chosen = read_fields(RedriveForm, submitted)
    gate: Gate = request.app.state.gate

    def start(runtime: Runtime) -> list[str]:
        how = {"retransform": bool(chosen.retransform), "again": bool(chosen.again)}
        rate = chosen.rate_per_second()
        begun = []
        for each in chosen.selections(runtime, request):
            run = f"{gate.recorded_prefix}page, {submitted.viewer.name}, {uuid.uuid4()}"
            begun.append(begin_redrive(runtime, each, run, rate=rate, **how).redrive_id)
        return begun

    def page(runtime: Runtime) -> dict[str, Any]:
        values = {"viewer": submitted.viewer} | _preview(runtime, request, chosen)
        values.pop("message", None)  # the refusal shows the same reason
        return values

    begun: list[str] = await run_expensive(request, lambda: run_form(request, start, "redrive", page))
    for redrive_id in begun:
        error = await gate.carry_out("redrive", redrive_id, submitted.viewer.name)
        if error:
            raise CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"The redrive {redrive_id} is recorded, but {error}")
    return redirect_to(request, "/redrives")


@router.get("/redrives")
@reads_store
def redrives(request: Request, found: _Viewer, cursor: str = "") -> Response:
    """Return redrives, the newest first, with the outcomes of their dead letters."""

    def load(runtime: Runtime) -> dict[str, Any]:
        marks = Marks(runtime)
        some, following = page_of(visible_redrives(runtime), lambda each: (each.redrive_id,), _LISTED, cursor or None)
        return {
            "redrives": [visible_selection(request, redrive_document(each, marks.counts(each))) for each in some],
            "cursor": following,
        }

    return render(request, "redrives", {"viewer": found} | run_for_caller(request, load))


@router.post("/redrives/{redrive_id}/cancel")
def cancel(request: Request, submitted: OperatorForm, redrive_id: str) -> Response:
    """Cancel a redrive."""

    def apply(runtime: Runtime) -> None:
        runtime.ledger.redrives.end(find_redrive(runtime, redrive_id).redrive_id, "cancelled")

    run_for_caller(request, apply)
    return redirect_to(request, "/redrives")
