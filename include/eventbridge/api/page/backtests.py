"""Backtests: begun from the page of a rule, where Airflow is around it, and the reports that they left."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from eventbridge.api.costly import costly
from eventbridge.api.page import views
from eventbridge.api.page.forms import Act, Acting, run_form, sent_to
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Gate, Viewer, viewer
from eventbridge.api.payloads import check_payloads
from eventbridge.api.reading import run_for_caller
from eventbridge.api.refusal import Refused
from eventbridge.errors import RuleFileError, UserError
from eventbridge.stages.operate.backtest_reports import find_report, report_page
from eventbridge.stages.operate.candidates import read_candidate
from eventbridge.stages.operate.find import find_rule
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.runtime.time_range import time_range

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]
_LISTED = 20


@router.get("/backtests")
def backtests(request: Request, found: _Viewer, cursor: str = "") -> Response:
    """Return the reports of backtests in short, the newest first."""
    page = run_for_caller(request, lambda runtime: report_page(runtime, _LISTED, cursor or None))
    return render(request, "backtests", {"viewer": found, "reports": page.reports, "cursor": page.cursor})


@router.get("/backtests/{backtest_id}")
def backtest(request: Request, found: _Viewer, backtest_id: str) -> Response:
    """Return one report: what a candidate matches and makes, or how two differ, with samples."""

    def told(runtime: Runtime) -> object:
        check_payloads(request)
        return find_report(runtime, backtest_id)

    return render(request, "backtest", {"viewer": found, "report": run_for_caller(request, told)})


@router.post("/rules/{name}/backtest")
async def begin(request: Request, act: Acting, name: str) -> Response:
    """Have Airflow run a rule over the archive, or compare it with the rule file that somebody wrote."""
    if not act.viewer.backtests:
        said = (
            f"{act.viewer.name} may not backtest: "
            "it takes Airflow, and the permission to trigger eventbridge_backtest_rules"
        )
        raise Refused(HTTPStatus.FORBIDDEN, f"{said}. `eventbridge rules backtest` does the same")
    check_payloads(request)

    def page(runtime: Runtime) -> dict[str, Any]:
        return {"viewer": act.viewer, "form": act} | views.rule(runtime, name, "hour")

    def conf_of() -> dict[str, str]:
        conf: dict[str, str] = run_form(request, lambda runtime: _conf(runtime, act, name), "rule", page)
        return conf

    conf = await costly(request, conf_of)
    gate: Gate = request.app.state.gate
    if trouble := await gate.backtest(conf, act.viewer.name):
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, trouble)
    return sent_to(request, "/backtests")


def _conf(runtime: Runtime, act: Act, name: str) -> dict[str, str]:
    """Return what the form of the DAG takes; raises UserError for an invalid time and for a file with errors."""
    find_rule(runtime.rule_set(), name)
    since, until = time_range(runtime.ledger.now(), act["since"], act["until"] or None)
    times = {"from": since.isoformat(), "to": until.isoformat()}
    if act["do"] != "compare":
        return {"candidate": name} | times
    text = act["candidate"]
    if not text.startswith(("rules:", "buses:", "#")):  # anything else could name a file of the host
        raise UserError("the changed rule is to be a rule file: it begins with rules: or buses:")
    try:
        read_candidate(runtime, text)
    except RuleFileError as error:
        raise UserError(str(error)) from None
    return {"a": name, "b": text} | times
