"""Serves the reports of backtests, and the form that starts a backtest if Airflow mounts the page."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.call_pools import reads_store, run_expensive
from eventbridge.api.documents import run_for_caller
from eventbridge.api.page import values
from eventbridge.api.page.forms import OperatorForm, SubmittedForm, redirect_to, run_form
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Gate, Viewer, viewer
from eventbridge.api.payloads import require_payloads
from eventbridge.api.refusal import CallRefused
from eventbridge.backtest.report import find_report, report_page
from eventbridge.backtest.running import running_backtests
from eventbridge.control.backtest import read_candidate
from eventbridge.errors import RuleFileError, UserError
from eventbridge.rules.find import find_rule
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.views.archive_estimate import estimate

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]
_LISTED = 20
#: The maximum number of rules that the form lists; with more, the name is typed.
_MAX_CHOICES = 200


@router.get("/backtests")
@reads_store
def backtests(request: Request, found: _Viewer, cursor: str = "") -> Response:
    """Return the backtests that run, with their progress, and the list of reports, the newest first."""

    def load(runtime: Runtime) -> dict[str, Any]:
        page = report_page(runtime, _LISTED, cursor or None)
        return {"running": running_backtests(runtime), "reports": page.reports, "cursor": page.cursor}

    return render(request, "backtests", {"viewer": found} | run_for_caller(request, load))


@router.get("/backtest")
def backtest_form(
    request: Request,
    found: _Viewer,
    rule: str = "",
    since: Annotated[str, Query(alias="from")] = "24h",
    until: Annotated[str, Query(alias="to")] = "",
) -> Response:
    """Return the form of a backtest and, once it names a rule, about how many events it reads."""

    def load(runtime: Runtime) -> dict[str, Any]:
        names = sorted(runtime.rule_set().rules)
        values: dict[str, Any] = {"names": names if len(names) <= _MAX_CHOICES else []}
        if not rule:
            return values
        try:
            bus = find_rule(runtime.rule_set(), rule).bus
            return values | {"estimate": estimate(runtime, bus, since, until, [rule])}
        except UserError as error:  # a wrong value in the form, which is shown again
            return values | {"message": str(error)}

    form = {"rule": rule, "from": since, "to": until}
    return render(request, "backtest_form", {"viewer": found, "form": form} | run_for_caller(request, load))


@router.get("/backtests/{backtest_id}")
@reads_store
def backtest(request: Request, found: _Viewer, backtest_id: str) -> Response:
    """Return one report: the matches and outputs of a candidate, or the differences of two, with samples."""

    def load(runtime: Runtime) -> object:
        require_payloads(request)
        return find_report(runtime, backtest_id)

    return render(request, "backtest", {"viewer": found, "report": run_for_caller(request, load)})


@router.post("/rules/{name}/backtest")
async def begin(request: Request, submitted: OperatorForm, name: str) -> Response:
    """Have Airflow run a rule over the archive, or compare it with a changed version from the form."""
    if not submitted.viewer.can_backtest:
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"{submitted.viewer.name} may not start backtests. They need Airflow, and the permission to trigger "
            "eventbridge_backtest_rules, eventbridge_diff_rules and eventbridge_owners. "
            "Use `eventbridge rules backtest` instead",
        )
    require_payloads(request)

    def page(runtime: Runtime) -> dict[str, Any]:
        return {"viewer": submitted.viewer, "form": submitted} | values.rule(runtime, request, name)

    def conf_of() -> dict[str, str]:
        conf: dict[str, str] = run_form(request, lambda runtime: _conf(runtime, submitted, name), "rule", page)
        return conf

    conf = await run_expensive(request, conf_of)
    gate: Gate = request.app.state.gate
    if error := await gate.backtest(conf, submitted.viewer.name):
        raise CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, error)
    return redirect_to(request, "/backtests")


def _conf(runtime: Runtime, submitted: SubmittedForm, name: str) -> dict[str, str]:
    """Return the parameters of the DAG. Raises UserError for an invalid time and for a rule file with errors."""
    find_rule(runtime.rule_set(), name)
    since, until = time_range(runtime.ledger.now(), submitted["from"], submitted["to"] or None)
    times = {"from": since.isoformat(), "to": until.isoformat()}
    if submitted["do"] != "compare":
        return {"candidate": name} | times
    text = submitted["candidate"]
    if not text.startswith(("rules:", "buses:", "#")):  # any other text could name a file on the host
        raise UserError("the changed rule must be a rule file, which begins with rules: or buses:")
    try:
        read_candidate(runtime, text)
    except RuleFileError as error:
        raise UserError(str(error)) from None
    return {"a": name, "b": text} | times
