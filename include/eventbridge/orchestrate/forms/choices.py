"""What forms of DAGs propose from the rule files."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from eventbridge.errors import RuleFileError
from eventbridge.orchestrate.schedule import runners_in_force
from eventbridge.orchestrate.settings import airflow_settings


def buses_to_choose() -> list[str]:
    """Return the buses to choose from: proposals only, so that a run that was triggered goes on as rules change."""
    if get_parsing_context().dag_id is not None:
        return []
    from eventbridge.rule import load_rules

    settings = airflow_settings()
    if settings.rules_from == "published":
        return sorted(set(runners_in_force(settings).values()))
    try:
        return sorted(load_rules(Path(settings.rules_folder), cache=settings.rule_cache).buses)
    except RuleFileError:  # the DAG file `rule_mistakes.py` shows them
        return []
