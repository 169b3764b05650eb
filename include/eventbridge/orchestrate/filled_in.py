"""What a person filled into the form of a run, made sure of before any work begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eventbridge.errors import UserError

if TYPE_CHECKING:
    from airflow.sdk import Context


def filled_in(context: Context, fields: Collection[str], goes_on: str = "") -> dict[str, Any]:
    """Return the values of a run's form by field; raises UserError for a field that the form does not have.

    `goes_on` is the field with the id of work that was begun. A run that names such work, and does not say whether it
    is a dry run, is none: another run, which delivered before it, triggered it.
    """
    conf = context["dag_run"].conf or {}
    _refuse_unknown_fields(conf, list(fields))
    form = {name: context["params"][name] for name in fields}
    if goes_on and form[goes_on] and "dry_run" not in conf:
        form["dry_run"] = False
    return form


def refuse_empty(form: Mapping[str, Any], required: Mapping[str, str]) -> None:
    """Raise UserError that names every required field that is empty; `required` says what belongs into each."""
    empty = [f"{name} ({what})" for name, what in required.items() if not form[name]]
    if empty:
        listed = f"{', '.join(empty[:-1])} and {empty[-1]}" if len(empty) > 1 else empty[0]
        raise UserError(f"the form is not complete. Fill in {listed}.")


def _refuse_unknown_fields(conf: Mapping[str, object], names: Sequence[str]) -> None:
    """Refuse what the form does not have: Airflow passes it on, and a typo would choose, or do, more."""
    from eventbridge.rule.fields import nearest

    for name in conf:
        if name not in names:
            hint = nearest(name, names) or f"Its fields: {', '.join(names)}."
            raise UserError(f"unknown field {name!r} of the form. {hint}")
