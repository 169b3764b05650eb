"""Provides shared parts of the DAGs' forms: the names that they propose, checks of values, and records of requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_parsing_context

from eventbridge.airflow.schedule import runners_in_force
from eventbridge.airflow.settings import airflow_settings
from eventbridge.errors import EventBridgeError, RuleFileError, UserError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from eventbridge.rules import RuleSet
    from eventbridge.runtime.runtime import Runtime

#: The value for all rules in the field Rules; no rule can have this name.
ALL = "*"

#: The maximum number of names in a list of proposals. They are part of the DAG, which Airflow stores in its database. A
#: longer list is omitted.
_MAX_PROPOSED = 500


@dataclass(frozen=True)
class Choices:
    """The names of buses, rules and targets that the forms propose."""

    buses: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


#: No names, for the process of a task, which shows no form.
NO_CHOICES = Choices()


def choices() -> Choices:
    """Return the names to propose, none in a task's process.

    They are only proposals, so that a triggered run stays valid if rules change. If the rules are published, only buses
    are proposed, because the ledger has no other names.
    """
    if get_parsing_context().dag_id is not None:
        return NO_CHOICES
    from eventbridge.rules.load import load_rules

    settings = airflow_settings()
    if settings.rules_from == "published":
        return Choices(_proposed(runners_in_force(settings).values()))
    try:
        return _choices_of(load_rules(Path(settings.rules_folder), cache=settings.rule_cache))
    except RuleFileError:  # the DAG file `eventbridge_rule_errors.py` shows them
        return NO_CHOICES


def _choices_of(rules: RuleSet) -> Choices:
    targets = (name for rule in rules.rules.values() for name in rule.destinations)
    return Choices(_proposed(rules.buses), _proposed(rules.rules), _proposed(targets))


def _proposed(names: Iterable[str]) -> tuple[str, ...]:
    found = sorted(set(names))
    return tuple(found) if len(found) <= _MAX_PROPOSED else ()


def proposing(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a string parameter that proposes names and accepts any other string."""
    return {"examples": list(names)} if names else {}


def choosing(names: tuple[str, ...], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options of a parameter for several names, with the names in `labels` first.

    Airflow's form accepts only these names. If there are none, the user types names, one per line.
    """
    if not names:
        return {}
    labels = labels or {}
    return {"examples": [*labels, *names]} | ({"values_display": dict(labels)} if labels else {})


def form_values(context: Context, fields: Collection[str], resumes: str = "") -> dict[str, Any]:
    """Return the values of a run's form by field. Raises UserError for an unknown field.

    `resumes` is the field with the id of a replay or redrive to continue. If a run sets this field but not `dry_run`,
    it is not a dry run: such a run was triggered by the run of the previous batch.
    """
    conf = context["dag_run"].conf or {}
    _refuse_unknown_fields(conf, list(fields))
    form = {name: context["params"][name] for name in fields}
    if resumes and form[resumes] and "dry_run" not in conf:
        form["dry_run"] = False
    return form


def refuse_empty(form: Mapping[str, Any], required: Mapping[str, str]) -> None:
    """Raise UserError if required fields are empty. `required` maps each field to a description of its value."""
    empty = [f"{name} ({what})" for name, what in required.items() if not form[name]]
    if empty:
        listed = f"{', '.join(empty[:-1])} and {empty[-1]}" if len(empty) > 1 else empty[0]
        raise UserError(f"the form is incomplete. Fill in {listed}.")


def _refuse_unknown_fields(conf: Mapping[str, object], names: Sequence[str]) -> None:
    """Raise UserError for an unknown field. Airflow accepts it, but a misspelled filter would select too much."""
    from eventbridge.similar_names import nearest

    for name in conf:
        if name not in names:
            hint = nearest(name, names) or f"Its fields: {', '.join(names)}."
            raise UserError(f"unknown field {name!r} of the form. {hint}")


@contextmanager
def recorded_form(runtime: Runtime, context: Context, form: Mapping[str, Any]) -> Iterator[str]:
    """Record a form before the block runs, and the block's exit code afterwards. Yields the name of the user.

    Raises LedgerError before the block runs if the form cannot be recorded. A dry run changes nothing, so it is not
    recorded.
    """
    from eventbridge.control.actions import note_action

    by = user_of(context)
    if form.get("dry_run"):
        yield by
        return
    filled = {name: value for name, value in form.items() if value not in (None, "", [], False)}
    number = note_action(runtime, f"Airflow, {by}", f"DAG {context['dag'].dag_id}", filled)
    code = 1
    try:
        yield by
        code = 0
    except EventBridgeError as error:
        code = error.exit_code
        raise
    finally:
        runtime.ledger.actions.record_status(number, code)


def user_of(context: Context) -> str:
    """Return the name of the user who triggered a run, or the run id if Airflow has no name."""
    return getattr(context["dag_run"], "triggering_user_name", None) or context["run_id"]
