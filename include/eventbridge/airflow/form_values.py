"""The values that a person entered in the form of a run, checked before the task does anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eventbridge.errors import UserError

if TYPE_CHECKING:
    from airflow.sdk import Context


def form_values(context: Context, fields: Collection[str], resumes: str = "") -> dict[str, Any]:
    """Return the values of a run's form by field; raises UserError for an unknown field.

    `resumes` is the field with the id of a replay or redrive to continue. A run that sets it and does not say `dry_run`
    is not a dry run: the run of the previous batch triggered it.
    """
    conf = context["dag_run"].conf or {}
    _refuse_unknown_fields(conf, list(fields))
    form = {name: context["params"][name] for name in fields}
    if resumes and form[resumes] and "dry_run" not in conf:
        form["dry_run"] = False
    return form


def refuse_empty(form: Mapping[str, Any], required: Mapping[str, str]) -> None:
    """Raise UserError that names every required field that is empty; `required` maps each field to what it needs."""
    empty = [f"{name} ({what})" for name, what in required.items() if not form[name]]
    if empty:
        listed = f"{', '.join(empty[:-1])} and {empty[-1]}" if len(empty) > 1 else empty[0]
        raise UserError(f"the form is incomplete. Fill in {listed}.")


def _refuse_unknown_fields(conf: Mapping[str, object], names: Sequence[str]) -> None:
    """Refuse an unknown field: Airflow passes it on, and a typo would select or deliver more."""
    from eventbridge.similar_names import nearest

    for name in conf:
        if name not in names:
            hint = nearest(name, names) or f"Its fields: {', '.join(names)}."
            raise UserError(f"unknown field {name!r} of the form. {hint}")
