"""The names from the rule files that the forms of DAGs propose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_parsing_context

from eventbridge.airflow.schedule import runners_in_force
from eventbridge.airflow.settings import airflow_settings
from eventbridge.errors import RuleFileError

if TYPE_CHECKING:
    from eventbridge.rules import RuleSet

#: The value for all rules in the field Rules; no rule can have this name.
ALL = "*"

#: The most names that a form proposes: they are part of the DAG, which Airflow stores in its database.
_MOST_PROPOSED = 500


@dataclass(frozen=True)
class Choices:
    """The names of buses, rules and targets that the forms propose."""

    buses: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


#: Nothing to propose, as in the process of a task.
NO_CHOICES = Choices()


def choices() -> Choices:
    """Return the names to propose. They are only proposals, so a triggered run stays valid when rules change.

    For published rules, the ledger has only the names of the buses.
    """
    if get_parsing_context().dag_id is not None:
        return NO_CHOICES
    from eventbridge.rules import load_rules

    settings = airflow_settings()
    if settings.rules_from == "published":
        return Choices(_proposed(runners_in_force(settings).values()))
    try:
        return _of(load_rules(Path(settings.rules_folder), cache=settings.rule_cache))
    except RuleFileError:  # the DAG file `eventbridge_rule_errors.py` shows them
        return NO_CHOICES


def _of(rules: RuleSet) -> Choices:
    targets = (name for rule in rules.rules.values() for name in rule.destinations)
    return Choices(_proposed(rules.buses), _proposed(rules.rules), _proposed(targets))


def _proposed(names: Iterable[str]) -> tuple[str, ...]:
    found = sorted(set(names))
    return tuple(found) if len(found) <= _MOST_PROPOSED else ()


def proposing(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a text parameter that proposes names and accepts any other text."""
    return {"examples": list(names)} if names else {}


def choosing(names: tuple[str, ...], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options of a parameter for several names, those with labels first.

    Airflow's form offers only these names; without any, a person types names, one per line.
    """
    if not names:
        return {}
    labels = labels or {}
    return {"examples": [*labels, *names]} | ({"values_display": dict(labels)} if labels else {})
