"""Defines the DAG `eventbridge_backtest_rules`, which runs candidate rules over the archive and writes a report.

This module also has the task and the form of the DAG `eventbridge_diff_rules`. Neither DAG delivers anything.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

from eventbridge.airflow.form_fields import NO_CHOICES, Choices, choices, proposing
from eventbridge.airflow.names import BACKTEST_DAG
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.tasks import TASK, give_way_as_old, hide_traceback, stage
from eventbridge.model.form_labels import REPLAY_LABELS

if TYPE_CHECKING:
    from eventbridge.backtest.report import BacktestReport, DiffReport
    from eventbridge.control.backtest import BacktestRequest
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

GUIDE = """
Runs rules over archived events: trigger the DAG, name a rule or paste a rule file, and choose the time range.

It delivers nothing. The report shows the matches of each hour, their average rate, the minute with the most matches,
failed outputs with the reasons, and sample outputs. It is written to the store as JSON and Markdown, and the task's log
has the addresses of both files. `eventbridge rules backtest` does the same.
"""


def backtest_rules() -> DAG:
    """Return the DAG."""
    airflow_settings()  # refuses executors that cannot share the ledger
    with DAG(
        dag_id=BACKTEST_DAG,
        description="Runs candidate rules over the archive and writes a report",
        doc_md=GUIDE,
        schedule=None,
        max_active_runs=2,
        dagrun_timeout=BACKTEST_LIMIT,
        params=backtest_params(choices()),
        tags=["eventbridge", "operate"],
        **dag_options(pre_execute=give_way_as_old),
    ) as dag:
        backtest()
    return dag


#: The maximum duration of a run, after which Airflow ends it. A year of archive takes many runs.
BACKTEST_LIMIT = timedelta(hours=6)


@task(**TASK, do_xcom_push=False)
@hide_traceback
def backtest() -> None:
    """Run the form's candidate over the archive, and log its matches and where the report is."""
    from eventbridge.airflow.spark import open_router
    from eventbridge.backtest.running import recorded_progress
    from eventbridge.control.backtest import backtest_rules

    form = get_current_context()["params"]
    with stage() as runtime, recorded_progress(runtime, _name(form["candidate"])) as progress:
        request, router = _request(form), open_router(runtime)
        report = backtest_rules(runtime, form["candidate"], request, router, progress=progress)
        _keep(runtime, report)
    for rule in report.rules:
        log.info(
            "rule %s would match %s of %s archived events, on average %.3f per second",
            *(rule.rule, rule.matched, report.events, rule.rate_per_second),
        )
        if rule.left_out:
            log.warning("rule %s was not evaluated for %s events: %s", rule.rule, rule.left_out, rule.left_out_why)
        for target in rule.targets:
            log.info("target %s/%s: failed outputs: %s", rule.rule, target.target, target.failed)


@task(**TASK, do_xcom_push=False)
@hide_traceback
def diff() -> None:
    """Compare the form's two candidates over the archive, and log how they differ and where the report is."""
    from eventbridge.airflow.spark import open_router
    from eventbridge.backtest.running import recorded_progress
    from eventbridge.control.backtest import diff_rules

    form = get_current_context()["params"]
    what = f"{_name(form['b'])} compared with {_name(form['a'])}"
    with stage() as runtime, recorded_progress(runtime, what) as progress:
        request, router = _request(form), open_router(runtime)
        report = diff_rules(runtime, form["a"], form["b"], request, router, progress=progress)
        _keep(runtime, report)
    for pair in report.pairs:
        changed = ", ".join(f"{each.target} {each.changed}" for each in pair.targets if not each.only_in)
        log.info(
            "rule %s of B compared with rule %s of A: both match %s events, only B %s, only A %s; changed outputs: %s",
            *(pair.b, pair.a, pair.both, pair.gained, pair.lost, changed or "none"),
        )
        if pair.left_out:
            log.warning("%s events were not compared for rule %s of A: %s", pair.left_out, pair.a, pair.left_out_why)


def _name(candidate: str) -> str:
    """Return the name of a candidate in the list of running backtests."""
    from eventbridge.control.backtest import is_rule_text

    return "a pasted rule file" if is_rule_text(candidate) else candidate


def _request(form: Mapping[str, Any]) -> BacktestRequest:
    from eventbridge.control.backtest import BacktestRequest

    return BacktestRequest(form["from"], form["to"], form["bus"] or None, form["samples"])


def _keep(runtime: Runtime, report: BacktestReport | DiffReport) -> None:
    from eventbridge.control.backtest import keep_report

    for uri in keep_report(runtime, report):
        log.info("report: %s", uri)


_CANDIDATE = "The name of a current rule, RULE@VERSION for a former version, or the text of a rule file."


def backtest_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of `eventbridge_backtest_rules`: the candidate and the time range."""
    return {"candidate": _candidate("Candidate"), **_archive_params(propose)}


def diff_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of `eventbridge_diff_rules`: the two candidates and the time range."""
    return {"a": _candidate("A"), "b": _candidate("B, compared with A"), **_archive_params(propose)}


def _candidate(title: str) -> Param:
    return Param("", type="string", format="multiline", minLength=1, title=title, description=_CANDIDATE)


def _archive_params(propose: Choices) -> dict[str, Param]:
    text = ["null", "string"]
    return {
        "from": Param(
            type="string",
            format="date-time",
            title=REPLAY_LABELS["from"],
            description="Events landed at or after this time. Required.",
        ),
        "to": Param(
            None,
            type=text,
            format="date-time",
            title=REPLAY_LABELS["to"],
            description="Events landed before this time; empty: now.",
        ),
        "bus": Param(
            None,
            type=text,
            **proposing(propose.buses),
            title=REPLAY_LABELS["bus"],
            description="Only rules of this bus. Required for a rule file with rules of several buses.",
        ),
        "samples": Param(
            3,
            type="integer",
            minimum=0,
            maximum=100,
            title="Samples",
            description="Maximum number of sample events or outputs in each list of the report.",
        ),
    }
