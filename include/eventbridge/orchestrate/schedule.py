"""When the DAGs run: when the watcher starts a run, and when `eventbridge_start_waiting_runs` finds what the watcher
missed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

from airflow.sdk import Asset, AssetWatcher, CronTriggerTimetable, get_parsing_context

from eventbridge.config.settings import Settings
from eventbridge.decision.streaming_slots import short_of_slots
from eventbridge.errors import LedgerError, RuleFileError
from eventbridge.orchestrate.names import STREAMING, runner_of
from eventbridge.orchestrate.settings import airflow_settings
from eventbridge.orchestrate.watcher import Watcher

if TYPE_CHECKING:
    from airflow.sdk.api.datamodels._generated import DagRunType

    from eventbridge.model.rules_in_force import RulesInForce
    from eventbridge.rule import RuleSet

log = logging.getLogger(__name__)

OWNER = "eventbridge"

#: Any time in the past: without catch-up only the present counts.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)

#: What may start a run; no backfill, which would make one for every minute of its range.
RUN_TYPES = cast("tuple[DagRunType, ...]", ("scheduled", "asset_triggered", "manual", "operator_triggered"))

#: What may start a run of a DAG that is made for backfills. Airflow wants a schedule's runs to be allowed as well, and
#: without manual ones its UI has no button for the dialogue.
BACKFILL_TYPES = cast("tuple[DagRunType, ...]", ("scheduled", "backfill", "manual"))

#: When `eventbridge_start_waiting_runs` looks while the watcher is silent.
EACH_MINUTE = "* * * * *"
#: When it looks while the watcher works, which repeats by itself what nobody responded to.
EVERY_TEN_MINUTES = "*/10 * * * *"
#: The watcher works if it has looked within this time; it notes its looks three times as often.
ALIVE = timedelta(seconds=60)
#: How long the ledger may take to say when the watcher looked.
_ASK_SECONDS = 1.0


def asset_of(subject: str) -> Asset:
    """Return the asset whose events start the runs for a subject of the watcher."""
    watcher = AssetWatcher(name=f"{subject}_watcher", trigger=Watcher(subject))
    return Asset(name=subject, uri=f"eventbridge://{subject}", watchers=[watcher])


def fallback_schedule() -> CronTriggerTimetable:
    """Return the schedule of `eventbridge_start_waiting_runs`.

    In a task's process, which does not need it, without the ledger.
    """
    parsing_for_task = get_parsing_context().dag_id is not None
    expression = EVERY_TEN_MINUTES if parsing_for_task else fallback_cron(airflow_settings().ledger_url)
    return CronTriggerTimetable(expression, timezone="UTC")


def fallback_cron(ledger_url: str) -> str:
    """Return EVERY_TEN_MINUTES while the watcher works, EACH_MINUTE if it does not or if that is not known.

    Airflow parses the DAG file regularly, and each parse asks the ledger when the watcher looked last: a watcher that
    died is known within ALIVE and the time between two parses.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from eventbridge.ledger.engines.registry import engine_of
    from eventbridge.ledger.watcher import last_look

    ledger = engine_of(ledger_url)
    try:
        # As a reader: a parse makes no ledger and migrates none, and Airflow gives it 30 s in all.
        last = last_look(ledger, _ASK_SECONDS)
        return EVERY_TEN_MINUTES if last is not None and ledger.now() - last < ALIVE else EACH_MINUTE
    except FileNotFoundError:  # nothing was delivered here yet
        return EACH_MINUTE
    except (LedgerError, SQLAlchemyError) as error:
        log.warning("whether the watcher works is not known: %s", error)
        return EACH_MINUTE


def runners_to_parse() -> dict[str, float | None]:
    """Return the runners whose DAGs this parse of a DAG file must make, with the seconds of a streaming task; None:
    batch mode.

    All runners of the rule files or, with errors in them, of the last ones without (the DAG file
    `eventbridge_rule_errors.py` shows the errors); in a task's process only the one it belongs to, without reading a
    rule file: every task parses its DAG file again, and a batch's tasks must go on while somebody edits the rules. Of
    such a DAG the first task tells the mode; to the others it makes no difference.
    """
    parsed = get_parsing_context()
    if parsed.dag_id is not None:
        runner = runner_of(parsed.dag_id)
        return {} if runner is None else {runner: 0.0 if parsed.task_id == STREAMING else None}
    from eventbridge.rule import load_rules

    settings = airflow_settings()
    if settings.rules_from == "published":
        return _of_ledger(settings)
    try:
        return _with_streaming_tasks(load_rules(Path(settings.rules_folder), cache=settings.rule_cache))
    except RuleFileError:
        return _of_ledger(settings)


def warning_of_slots(runners: Mapping[str, float | None]) -> str | None:
    """Return, and log, what to say of runners, by their streaming tasks, that can take every slot of the executor."""
    from airflow.configuration import conf

    streaming = sum(task_seconds is not None for task_seconds in runners.values())
    warning = short_of_slots(streaming, conf.getint("core", "parallelism", fallback=0))
    if warning is not None and get_parsing_context().dag_id is None:
        log.warning("%s", warning)
    return warning


def _with_streaming_tasks(rules: RuleSet) -> dict[str, float | None]:
    seconds = rules.streaming_task_seconds()
    return {runner: seconds.get(runner) for runner in rules.runners()}


def _of_ledger(settings: Settings) -> dict[str, float | None]:
    known = _in_force(settings)
    return (
        {runner: known.streaming_task_seconds.get(runner) for runner in sorted(known.runners)}
        if known is not None
        else {}
    )


def runners_in_force(settings: Settings) -> Mapping[str, str]:
    """Return runners, with their buses, of the rules in force; only the ledger knows them, and it is asked last."""
    known = _in_force(settings)
    return known.runners if known is not None else {}


def _in_force(settings: Settings) -> RulesInForce | None:
    from eventbridge.ledger import Ledger

    try:
        with closing(Ledger.open(settings.ledger_url)) as ledger:
            return ledger.rules_in_force()
    except (
        LedgerError
    ) as error:  # the tasks of every batch say so too; errors are shown by `eventbridge_rule_errors.py` alone
        log.warning("no DAG of a runner can be made: %s", error)
        return None


def refuse_rule_errors() -> None:
    """Raise RuleFileError with every error in the rule files: a DAG file that calls it has Airflow show them."""
    from eventbridge.rule import load_rules

    settings = airflow_settings()
    if settings.rules_from == "files":
        load_rules(Path(settings.rules_folder), cache=settings.rule_cache)
