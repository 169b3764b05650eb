"""Defines what the DAGs share: their options, assets and fallback schedule, and the runners that have a DAG.

The watcher starts the runs of the assets' DAGs; `eventbridge_start_waiting_runs` starts those that the watcher misses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import Asset, AssetWatcher, CronTriggerTimetable, get_parsing_context

from eventbridge.airflow.names import STREAMING, WATCHER_ALIVE, runner_of
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.watcher import Watcher
from eventbridge.config.settings import Settings
from eventbridge.errors import LedgerError, RuleFileError
from eventbridge.policy.streaming import short_of_slots

if TYPE_CHECKING:
    from airflow.sdk.api.datamodels._generated import DagRunType

    from eventbridge.model.rule_state import RulesInForce
    from eventbridge.rules import RuleSet

log = logging.getLogger(__name__)

OWNER = "eventbridge"

#: The start date of DAGs, an arbitrary time in the past. Without catch-up, Airflow creates no runs for the past.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)

#: The allowed types of runs. Backfills are not among them, because the backfill of a DAG that is scheduled every minute
#: would create a run for every minute of its range.
RUN_TYPES = cast("tuple[DagRunType, ...]", ("scheduled", "asset_triggered", "manual", "operator_triggered"))

#: The allowed types of runs of the DAG for backfills. Airflow also requires scheduled runs to be allowed, and its UI
#: has a button for the dialog only if manual runs are allowed.
BACKFILL_TYPES = cast("tuple[DagRunType, ...]", ("scheduled", "backfill", "manual"))

#: The schedule of `eventbridge_start_waiting_runs` while the watcher does not poll.
EACH_MINUTE = "* * * * *"
#: Its schedule while the watcher polls, because the watcher itself repeats starts that had no effect.
EVERY_TEN_MINUTES = "*/10 * * * *"
#: The maximum time that the ledger may take to return the watcher's last poll.
_QUERY_SECONDS = 1.0


def dag_options(**task_options: Any) -> dict[str, Any]:
    """Return the options of every DAG except the one for backfills; `task_options` apply to its tasks."""
    return {
        "start_date": BEGINNING,
        "catchup": False,
        "allowed_run_types": RUN_TYPES,
        "default_args": {"owner": OWNER, **task_options},
    }


def asset_of(subject: str) -> Asset:
    """Return the asset for one of the watcher's subjects. Each event of the asset starts a run."""
    watcher = AssetWatcher(name=f"{subject}_watcher", trigger=Watcher(subject))
    return Asset(name=subject, uri=f"eventbridge://{subject}", watchers=[watcher])


def fallback_schedule() -> CronTriggerTimetable:
    """Return the schedule of `eventbridge_start_waiting_runs`.

    The function reads the ledger, except in a task's process, which does not need the schedule.
    """
    parsing_for_task = get_parsing_context().dag_id is not None
    expression = EVERY_TEN_MINUTES if parsing_for_task else fallback_cron(airflow_settings().ledger_url)
    return CronTriggerTimetable(expression, timezone="UTC")


def fallback_cron(ledger_url: str) -> str:
    """Return EVERY_TEN_MINUTES while the watcher polls, and EACH_MINUTE if it does not poll or if that is unknown.

    Airflow parses the DAG file regularly, and each parse reads the watcher's last poll from the ledger. So a dead
    watcher is noticed within WATCHER_ALIVE plus the time between two parses.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from eventbridge.ledger.airflow import last_check
    from eventbridge.ledger.engines.registry import engine_of

    ledger = engine_of(ledger_url)
    try:
        # Only read, because a parse neither creates nor migrates a ledger, and Airflow limits it to 30 s.
        last = last_check(ledger, _QUERY_SECONDS)
        return EVERY_TEN_MINUTES if last is not None and ledger.now() - last < WATCHER_ALIVE else EACH_MINUTE
    except FileNotFoundError:  # nothing has been delivered yet
        return EACH_MINUTE
    except (LedgerError, SQLAlchemyError) as error:
        log.warning("cannot determine whether the watcher is alive: %s", error)
        return EACH_MINUTE


def runners_to_parse() -> dict[str, float | None]:
    """Return the runners whose DAGs this parse of a DAG file must define, with the duration of their streaming tasks.

    The duration is in seconds, and None in batch mode. The runners are those of the current rules. If the rule files
    have errors, the runners are those of the last rules without errors, and the DAG file `eventbridge_rule_errors.py`
    shows the errors. In a task's process the result has only the task's runner, and no rule file is read, because every
    task parses its DAG file again and the tasks of a batch must continue while rules are edited. The mode is then
    derived from the id of the task. This is right for the first task, and makes no difference to the others.
    """
    parsed = get_parsing_context()
    if parsed.dag_id is not None:
        runner = runner_of(parsed.dag_id)
        return {} if runner is None else {runner: 0.0 if parsed.task_id == STREAMING else None}
    from eventbridge.rules.load import load_rules

    settings = airflow_settings()
    if settings.rules_from == "published":
        return _runners_in_ledger(settings)
    try:
        return _runners_in_rules(load_rules(Path(settings.rules_folder), cache=settings.rule_cache))
    except RuleFileError:
        return _runners_in_ledger(settings)


def slot_warning(runners: Mapping[str, float | None]) -> str | None:
    """Return a warning if the streaming tasks of these runners can take every slot of the executor, else None.

    The warning is also logged, except in a task's process.
    """
    from airflow.configuration import conf

    streaming = sum(task_seconds is not None for task_seconds in runners.values())
    warning = short_of_slots(streaming, conf.getint("core", "parallelism", fallback=0))
    if warning is not None and get_parsing_context().dag_id is None:
        log.warning("%s", warning)
    return warning


def _runners_in_rules(rules: RuleSet) -> dict[str, float | None]:
    seconds = rules.streaming_task_seconds()
    return {runner: seconds.get(runner) for runner in rules.runners()}


def _runners_in_ledger(settings: Settings) -> dict[str, float | None]:
    known = _read_rules_in_force(settings)
    return (
        {runner: known.streaming_task_seconds.get(runner) for runner in sorted(known.runners)}
        if known is not None
        else {}
    )


def runners_in_force(settings: Settings) -> Mapping[str, str]:
    """Return the runners of the rules in force, with the bus of each, from the ledger."""
    known = _read_rules_in_force(settings)
    return known.runners if known is not None else {}


def _read_rules_in_force(settings: Settings) -> RulesInForce | None:
    from eventbridge.ledger import Ledger

    try:
        with closing(Ledger.open(settings.ledger_url)) as ledger:
            return ledger.rules.get_in_force()
    except LedgerError as error:
        # A warning is enough, because the tasks of every batch also fail if the ledger cannot be reached.
        log.warning("cannot define the DAGs of the runners: %s", error)
        return None


def refuse_rule_errors() -> None:
    """Raise RuleFileError with every error in the rule files, so that Airflow shows them as an import error."""
    from eventbridge.rules.load import load_rules

    settings = airflow_settings()
    if settings.rules_from == "files":
        load_rules(Path(settings.rules_folder), cache=settings.rule_cache)
