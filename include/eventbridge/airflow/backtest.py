"""The tasks of the DAGs `eventbridge_backtest_rules` and `eventbridge_diff_rules`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task

from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.tasks import TASK, stage

if TYPE_CHECKING:
    from eventbridge.backtest.report import BacktestReport, DiffReport
    from eventbridge.control.backtest import BacktestRequest
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: Airflow ends a run that takes longer. A year of archive takes many runs.
BACKTEST_LIMIT = timedelta(hours=6)


@task(**TASK, do_xcom_push=False)
@without_traceback
def backtest() -> None:
    """Run the form's candidate over the archive, and log what it would deliver and where the report is."""
    from eventbridge.airflow.spark import open_router
    from eventbridge.control.backtest import backtest_rules

    form = get_current_context()["params"]
    with stage() as runtime:
        report = backtest_rules(runtime, form["candidate"], _request(form), open_router(runtime))
        _keep(runtime, report)
    for rule in report.rules:
        log.info(
            "%s matched %s of %s events, %.3f a second; left out: %s %s",
            *(rule.rule, rule.matched, report.events, rule.rate_per_second, rule.left_out, rule.left_out_why),
        )
        for target in rule.targets:
            log.info("%s/%s: %s fail", rule.rule, target.target, target.failed)


@task(**TASK, do_xcom_push=False)
@without_traceback
def diff() -> None:
    """Compare the form's candidates over the archive, and log how they differ and where the report is."""
    from eventbridge.airflow.spark import open_router
    from eventbridge.control.backtest import diff_rules

    form = get_current_context()["params"]
    with stage() as runtime:
        report = diff_rules(runtime, form["a"], form["b"], _request(form), open_router(runtime))
        _keep(runtime, report)
    for pair in report.pairs:
        changed = ", ".join(f"{each.target} {each.changed}" for each in pair.targets if not each.only_in)
        log.info(
            "%s compared with %s: both %s, gained %s, lost %s, changed outputs: %s; left out: %s %s",
            *(pair.b, pair.a, pair.both, pair.gained, pair.lost, changed or "none", pair.left_out, pair.left_out_why),
        )


def _request(form: Mapping[str, Any]) -> BacktestRequest:
    from eventbridge.control.backtest import BacktestRequest

    return BacktestRequest(form["from"], form["to"], form["bus"] or None, form["samples"])


def _keep(runtime: Runtime, report: BacktestReport | DiffReport) -> None:
    from eventbridge.control.backtest import keep_report

    for uri in keep_report(runtime, report):
        log.info("report: %s", uri)
